//! Errors of file operations on servers, with the URL of the file.

use nfs_client::{Error, Fault, NfsUrl};
use nfs_proto::Status;
use oncrpc::Chain;
use std::fmt;

/// An operation that failed on the file that a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    url: NfsUrl,
    /// The operation, as a verb such as `read`.
    doing: &'static str,
    fault: Fault,
}

impl FileError {
    /// The error of an operation, as a verb such as `read`, on the file that a URL names.
    pub fn new(url: NfsUrl, doing: &'static str, fault: impl Into<Fault>) -> Self {
        let fault = fault.into();
        Self { url, doing, fault }
    }

    /// The error of an operation at the server of this URL, of the file that its path names.
    pub fn at(server: &NfsUrl, error: Error) -> Self {
        let Error { doing, path, fault } = error;
        let url = url_at(server, path);
        Self { url, doing, fault }
    }

    /// The same of another operation.
    pub fn while_doing(self, doing: &'static str) -> Self {
        Self { doing, ..self }
    }

    /// URL of the file.
    pub fn url(&self) -> &NfsUrl {
        &self.url
    }

    /// The status that the server returned, if it is the server that refused.
    pub fn status(&self) -> Option<Status> {
        match self.fault {
            Fault::Status(status) => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.url)?;
        match self.doing {
            // That it is not there, or cannot be reached, says it all.
            "find" | "ask about" | "mount" => {}
            // What follows such a verb is the path, which stands in front here.
            doing => {
                let verb = ["about", "of", "through", "to"]
                    .iter()
                    .find_map(|last| doing.strip_suffix(last));
                write!(f, "cannot {}: ", verb.unwrap_or(doing).trim_end())?;
            }
        }
        write!(f, "{}", Chain(&self.fault))?;
        match self.fault.hint() {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// The message has everything: there is no source to be told after it.
impl std::error::Error for FileError {}

/// The URL of a path from the root of a server.
pub(crate) fn url_at(server: &NfsUrl, path: Vec<u8>) -> NfsUrl {
    let path = match path.starts_with(b"/") {
        true => path,
        false => [b"/", &path[..]].concat(),
    };
    NfsUrl {
        path,
        ..server.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_says_the_url_once_and_what_could_not_be_done() {
        let check = |doing, fault: Fault, text: &str| {
            let url = "nfs://h/a%20b".parse().unwrap();
            let shown = FileError { url, doing, fault }.to_string();
            assert!(shown.starts_with(text), "{shown}");
            assert_eq!(shown.matches("a%20b").count(), 1);
        };
        let denied = || Fault::from(Status::Access);
        check("find", denied(), "nfs://h/a%20b: permission denied (check");
        check(
            "remove",
            denied(),
            "nfs://h/a%20b: cannot remove: permission",
        );
        let attributes = "nfs://h/a%20b: cannot change attributes: permission";
        check("change attributes of", denied(), attributes);
        let shown = |url: &str| {
            let (url, fault) = (url.parse().unwrap(), Status::NoEntry.into());
            let doing = "find";
            FileError { url, doing, fault }.to_string()
        };
        assert!(shown("nfs://h/%C3%BC").starts_with("nfs://h/ü: "));
        let gone = Status::NoEntry.into();
        check(
            "rename to",
            gone,
            "nfs://h/a%20b: cannot rename: no such file",
        );
    }
}
