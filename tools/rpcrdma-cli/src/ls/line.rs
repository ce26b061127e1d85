//! A file as a program reads it, one JSON object per line.

use crate::owners::Owners;
use crate::{show, times};
use nfs_copy::Place;
use nfs_proto::Attributes;
use serde::Serialize;

/// A file as a program reads it. Sizes are in bytes, times in UTC (RFC 3339).
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Line {
    /// In the export; bytes that are no text are replaced.
    path: String,
    /// In ASCII, with other bytes as `%XX`.
    url: String,
    /// `file`, `directory`, `symlink`, `fifo`, `socket`, `block device` or `character device`.
    #[serde(rename = "type")]
    file_type: &'static str,
    /// Permission bits, in octal.
    mode: String,
    /// Number of hard links.
    links: u32,
    /// User id of the owner.
    uid: u32,
    /// Group id.
    gid: u32,
    /// Name of the owner on this machine, if it has one and names were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// Name of the group on this machine, if it has one and names were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// Size in bytes.
    size: u64,
    /// Bytes that it takes on the disk.
    used: u64,
    /// Inode number.
    fileid: u64,
    /// When the content was changed, in UTC (RFC 3339).
    mtime: String,
    /// When it was read, in UTC.
    atime: String,
    /// When the attributes were changed, in UTC.
    ctime: String,
    /// Text of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

impl Line {
    /// The file at a place; `target` is the text of a symbolic link. The names of its owners have been
    /// learnt.
    pub(crate) fn new(
        place: &Place,
        attributes: &Attributes,
        target: Option<&[u8]>,
        owners: &Owners,
    ) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            path: text(&place.path),
            url: place.url.escaped(),
            file_type: show::file_type(attributes.file_type),
            mode: format!("{:04o}", attributes.mode & 0o7777),
            links: attributes.links,
            uid: attributes.uid,
            gid: attributes.gid,
            owner: owners.user_name(attributes.uid).map(str::to_owned),
            group: owners.group_name(attributes.gid).map(str::to_owned),
            size: attributes.size,
            used: attributes.used,
            fileid: attributes.file_id.0,
            mtime: times::rfc3339(attributes.mtime),
            atime: times::rfc3339(attributes.atime),
            ctime: times::rfc3339(attributes.ctime),
            target: target.map(text),
        }
    }
}
