//! Sizes of the attributes of NFS version 4 (RFC 7531, RFC 5662, RFC 7863, RFC 8275, RFC 8276,
//! RFC 9754).

use crate::limits::{MAX_BITMAP, MAX_OWNER_NAME, MAX_SECURITY_LABEL, MAX_V4_HANDLE};

/// Largest `bitmap4` in bytes.
pub(super) const BITMAP: usize = 4 + 4 * MAX_BITMAP as usize;

/// Returns the largest size of an attribute in bytes. `None` if the protocol does not limit it
/// (RFC 8267 §6.2), or the attribute is not known.
const fn size(attribute: usize) -> Option<usize> {
    Some(match attribute {
        // supported_attrs, suppattr_exclcreat
        0 | 75 => BITMAP,
        // type, fh_expire_type; link_support, symlink_support, named_attr; unique_handles,
        // lease_time, rdattr_error; aclsupport to chown_restricted; hidden, homogeneous; maxlink,
        // maxname; mode, no_trunc, numlinks; system
        1 | 2 | 5..=7 | 9..=11 | 13..=18 | 25 | 26 | 28 | 29 | 33..=35 | 46 => 4,
        // change, size; fileid to files_total; maxfilesize; maxread, maxwrite; quotas and rawdev to
        // space_used; mounted_on_fileid
        3 | 4 | 20..=23 | 27 | 30 | 31 | 38..=45 | 55 => 8,
        // fsid, change_policy
        8 | 60 => 16,
        19 => 4 + MAX_V4_HANDLE as usize,
        // owner, owner_group
        36 | 37 => 4 + MAX_OWNER_NAME as usize,
        // time_access; time_backup to time_modify; dir_notif_delay, dirent_notif_delay
        47 | 49..=53 | 56 | 57 => 12,
        // layout_blksize, layout_alignment; fs_charset_cap, clone_blksize; change_attr_type;
        // xattr_support
        65 | 66 | 76 | 77 | 79 | 82 => 4,
        // retention_get, retentevt_get
        69 | 71 => 8 + 4 + 12,
        // retention_hold; space_freed
        73 | 78 => 8,
        // sec_label: `seclabel4` (RFC 7862 §12.2.4)
        80 => 8 + 4 + MAX_SECURITY_LABEL as usize,
        // offline (RFC 9754 §2)
        83 => 4,
        // time_deleg_access, time_deleg_modify (RFC 9754 §5)
        84 | 85 => 12,
        // open_arguments: five bitmaps (RFC 9754 §3)
        86 => 5 * BITMAP,
        // acl, fs_locations, mimetype, dacl, sacl, fs_status, layout types and hints,
        // fs_locations_info, mdsthreshold; what can be set only; what is new
        _ => return None,
    })
}

/// Sizes of all attributes; zero for those without a limit.
static SIZES: [usize; 96] = {
    let mut sizes = [0; 96];
    let mut attribute = 0;
    while attribute < sizes.len() {
        if let Some(size) = size(attribute) {
            sizes[attribute] = size;
        }
        attribute += 1;
    }
    sizes
};

/// Returns the largest size in bytes of the attributes in a word of a bitmap. `None` if one of them
/// has no limit.
pub(in crate::binding::scan) fn bits(word: u8, mut bits: u32) -> Option<usize> {
    let mut sum = 0;
    while bits != 0 {
        let attribute = usize::from(word) * 32 + bits.trailing_zeros() as usize;
        bits &= bits - 1;
        match SIZES.get(attribute) {
            None | Some(0) => return None,
            Some(&size) => sum += size,
        }
    }
    Some(sum)
}
