//! The state of clients as an administrator sees and changes it: with the names of exports and files.

use super::Nfs4;
use super::state::FileKey;
use crate::exports::{ExportsBefore, List};
use crate::fs::HeldFile;
use nfs_proto::v4::{ClientId, Status};
use nfs4_state::{StateKind, StateView};
use std::path::PathBuf;
use std::sync::Arc;

/// An open, or an owner of locks in an open.
#[derive(Clone, Debug)]
pub struct HeldState {
    /// The client id.
    pub client: ClientId,
    /// Name of the owner, in the client's terms.
    pub owner: Arc<[u8]>,
    /// Name of the export; `None` if it is exported no more.
    pub export: Option<String>,
    /// The file, as the file system names it in handles, in hexadecimal digits.
    pub file: String,
    /// Its path on this machine, if that is known.
    pub path: Option<PathBuf>,
    /// Whether it was revoked, and is kept for the client to take note.
    pub is_revoked: bool,
    /// What it is.
    pub kind: StateKind,
}

/// A list of what clients hold.
#[derive(Clone, Debug)]
pub struct HeldStates {
    /// Opens and owners of locks.
    pub states: Vec<HeldState>,
    /// Whether there are more.
    pub has_more: bool,
}

impl Nfs4 {
    /// Returns opens and owners of locks, of one client or of all: at most so many.
    pub fn held_states(&self, client: Option<ClientId>, max: usize) -> HeldStates {
        let list = self.inner.exports.all();
        let mut listed = HeldStates {
            states: Vec::new(),
            has_more: false,
        };
        let (mut from, mut held) = (Some(0), Vec::new());
        while let Some(at) = from {
            let page = self.inner.state.states_from(at);
            from = page.next;
            let wanted = page.states.into_iter();
            let wanted = wanted.filter(|(state, _)| client.is_none_or(|its| its == state.client));
            for (state, file) in wanted {
                if listed.states.len() == max {
                    listed.has_more = true;
                    from = None;
                } else {
                    listed.states.push(shown(&list, state, file.as_deref()));
                }
                held.extend(file);
            }
        }
        self.inner.state.release_held(held);
        listed
    }

    /// Revokes all opens and locks in an export, with what is mounted below it, and closes their files soon after, so that its file
    /// system can be unmounted. The export stays: clients may open files again. Returns the number of states that now are revoked;
    /// `None` without an export of this name.
    pub fn release_export(&self, name: &str) -> Option<usize> {
        let list = self.inner.exports.all();
        let numbers = list.numbers_of(name);
        match numbers.is_empty() {
            true => None,
            false => Some(self.inner.state.revoke(|export| numbers.contains(&export))),
        }
    }

    /// Revokes all opens and locks in file systems that were exported and are no more, and closes their files soon after. Returns the
    /// number of states that now are revoked.
    pub fn exports_replaced(&self, before: &ExportsBefore) -> usize {
        let gone = before.gone_in(&self.inner.exports.all());
        match gone.is_empty() {
            true => 0,
            false => self.inner.state.revoke(|export| gone.contains(&export)),
        }
    }

    /// Returns the client id of a client, named by its id in hexadecimal digits or by its name as it is listed.
    ///
    /// # Errors
    ///
    /// `StaleClientId`: there is no such client.
    pub fn find_client(&self, named: &str) -> Result<ClientId, Status> {
        self.inner.state.find_client(named)
    }

    /// Ends a client with all its state, named by its id in hexadecimal digits or by its name as it is listed.
    ///
    /// # Errors
    ///
    /// `StaleClientId`: there is no such client.
    pub fn expire(&self, named: &str) -> Result<(), Status> {
        let client = self.find_client(named)?;
        self.inner.state.expire_client(client)
    }
}

fn shown(list: &List, state: StateView<FileKey>, file: Option<&dyn HeldFile>) -> HeldState {
    let FileKey { export, file: id } = state.file;
    let digits = id.as_bytes().iter().map(|byte| format!("{byte:02x}"));
    HeldState {
        client: state.client,
        owner: state.owner,
        export: list.name_of(export).map(str::to_owned),
        file: digits.collect(),
        path: file.and_then(HeldFile::path),
        is_revoked: state.is_revoked,
        kind: state.kind,
    }
}

/// The name of a client or of an owner, as text. Bytes that are not printable are in hexadecimal digits, as a name is any bytes.
pub fn owner_name(name: &[u8]) -> String {
    name.iter().fold(String::new(), |mut text, byte| {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text += &format!("\\x{other:02x}"),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_are_printable_and_differ() {
        assert_eq!(owner_name(b"Linux NFSv4.2 host"), "Linux NFSv4.2 host");
        assert_eq!(owner_name(b"a\x1b\\\xff"), "a\\x1b\\\\\\xff");
        assert_ne!(owner_name(b"\\x1b"), owner_name(b"\x1b"));
    }
}
