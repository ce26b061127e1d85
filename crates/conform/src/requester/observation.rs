//! Messages of a Requester whose work went well.

use crate::as_words;
use crate::bed::NFS;
use crate::message::{Lists, Message};

/// A message of the Requester.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(super) message: Message,
    pub(super) bytes: Vec<u8>,
}

/// Messages of a Requester, as they were observed.
pub(crate) struct Observed {
    pub(super) private_data: Vec<u8>,
    pub(super) calls: Vec<Call>,
    /// Octets of their streams.
    pub(super) octets: usize,
    /// Calls that were unanswered at a time, and how many were granted, if they were more.
    pub(super) too_many: Option<(usize, usize)>,
}

/// A call, with its Read chunks pulled.
pub(super) struct Call {
    pub(super) received: Received,
    /// The whole stream, or the reason why it could not be pulled.
    pub(super) stream: Result<Vec<u8>, String>,
}

impl Call {
    pub(super) fn lists(&self) -> Option<&Lists> {
        self.received.message.lists_of()
    }

    /// Program, version and procedure, and the words of the arguments, if it is a call of NFS version 3.
    pub(super) fn nfs(&self) -> Option<(u32, Vec<u32>)> {
        let stream = self.stream.as_ref().ok()?;
        let words = as_words(stream.get(..stream.len() / 4 * 4)?);
        let &[_, 0, 2, NFS, 3, procedure, ..] = words.as_slice() else {
            return None;
        };
        let credential = *words.get(7)? as usize;
        let verifier_at = 8 + credential.div_ceil(4);
        let verifier = *words.get(verifier_at + 1)? as usize;
        let arguments = words.get(verifier_at + 2 + verifier.div_ceil(4)..)?;
        Some((procedure, arguments.to_vec()))
    }

    /// Words of the arguments behind the file handle, which is first in each.
    pub(super) fn behind_handle(arguments: &[u32]) -> Option<&[u32]> {
        let handle = *arguments.first()? as usize;
        arguments.get(1 + handle.div_ceil(4)..)
    }
}
