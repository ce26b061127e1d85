//! The state of clients as an administrator sees and changes it: with the names of exports and files.

use super::state::{FileKey, Nfs4State};
use crate::exports::{Exports, List};
use nfs_proto::v4::ClientId;
use nfs4_state::{StateKind, StateView};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long paths of files are looked up for a list. The rest of them is left out.
const PATHS_WITHIN: Duration = Duration::from_secs(3);

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
    /// Its path on this machine, if that could be found out.
    pub path: Option<PathBuf>,
    /// Whether it was revoked, and is kept for the client to take note.
    pub is_revoked: bool,
    /// An open, or the locks of an owner.
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

/// Returns opens and owners of locks, of one client or of all: at most so many. Waits for a disk.
pub(super) fn held_states(
    exports: &Exports,
    state: &Nfs4State,
    client: Option<ClientId>,
    max: usize,
) -> HeldStates {
    let names = names_of(&exports.all());
    let begin = Instant::now();
    let mut listed = HeldStates {
        states: Vec::new(),
        has_more: false,
    };
    let mut from = Some(0);
    while let Some(at) = from {
        let page = state.states_from(at);
        from = page.next;
        let wanted = page.states.into_iter();
        let wanted = wanted.filter(|(state, _)| client.is_none_or(|its| its == state.client));
        // A file that is held keeps its export, which may be removed meanwhile.
        let mut held = Vec::new();
        for (state, file) in wanted {
            if listed.states.len() == max {
                listed.has_more = true;
                from = None;
            } else {
                let path = (file.as_ref()).filter(|_| begin.elapsed() < PATHS_WITHIN);
                let path = path.and_then(|file| file.path());
                listed.states.push(shown(&names, state, path));
            }
            held.extend(file);
        }
        state.release_held(held);
    }
    listed
}

/// Returns the names of exports by their numbers.
fn names_of(list: &List) -> HashMap<u32, String> {
    let all = list.names().map(|(number, name)| (number, name.to_owned()));
    all.collect()
}

fn shown(
    names: &HashMap<u32, String>,
    state: StateView<FileKey>,
    path: Option<PathBuf>,
) -> HeldState {
    let FileKey { export, file: id } = state.file;
    let digits = id.as_bytes().iter().map(|byte| format!("{byte:02x}"));
    HeldState {
        client: state.client,
        owner: state.owner,
        export: names.get(&export).cloned(),
        file: digits.collect(),
        path,
        is_revoked: state.is_revoked,
        kind: state.kind,
    }
}
