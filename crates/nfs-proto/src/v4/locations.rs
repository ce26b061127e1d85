//! Attributes with structures of their own: locations of file systems, retention, labels and the like.

use crate::limits::{MAX_FILENAME, MAX_SECURITY_LABEL};
use crate::v4::array::Array;
use crate::v4::bitmap::Bitmap;
use crate::v4::limits::{MAX_COMPONENTS, MAX_LAYOUT_BODY, MAX_LAYOUT_TYPES, MAX_LOCATIONS};
use crate::v4::types::{LayoutType, Time};
use crate::{Bytes, Filename};

/// A path from the root (`pathname4`, RFC 8881 §3.2).
pub type PathName<'a> = Array<'a, Filename<'a>, MAX_COMPONENTS>;

/// Layout types, the preferred one first (`fs_layout_types`, RFC 8881 §5.12.1).
pub type LayoutTypes<'a> = Array<'a, LayoutType, MAX_LAYOUT_TYPES>;

/// Text that the protocol does not limit.
pub type Text<'a> = Bytes<'a, MAX_FILENAME>;

xdr_struct! {
    /// Identifies the policies for a file system's contents (`change_policy4`, RFC 8881 §3.3.6).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ChangePolicy {
        /// Major part.
        pub major: u64,
        /// Minor part.
        pub minor: u64,
    }
}

xdr_struct! {
    /// Servers with a copy of a file system (`fs_location4`, RFC 8881 §11.16).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FsLocation<'a> {
        /// Names or addresses.
        pub servers: Array<'a, Text<'a>, MAX_LOCATIONS>,
        /// Path of the file system there.
        pub root: PathName<'a>,
    }
}

xdr_struct! {
    /// Locations of a file system (`fs_locations4`, RFC 8881 §11.16).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FsLocations<'a> {
        /// Path of the file system on this server.
        pub root: PathName<'a>,
        /// The locations.
        pub locations: Array<'a, FsLocation<'a>, MAX_LOCATIONS>,
    }
}

xdr_struct! {
    /// One copy of a file system (`fs_locations_server4`, RFC 8881 §11.17.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LocationServer<'a> {
        /// How far it lags behind, in seconds; -1 if that is not known.
        pub currency: i32,
        /// Flags, classes and ranks, by the byte.
        pub info: Text<'a>,
        /// Name or address.
        pub server: Text<'a>,
    }
}

xdr_struct! {
    /// Copies with the same path (`fs_locations_item4`, RFC 8881 §11.17.3).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LocationItem<'a> {
        /// The copies.
        pub entries: Array<'a, LocationServer<'a>, MAX_LOCATIONS>,
        /// Path of the file system there.
        pub root: PathName<'a>,
    }
}

xdr_struct! {
    /// Locations with their properties (`fs_locations_info4`, RFC 8881 §11.17.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FsLocationsInfo<'a> {
        /// Flags.
        pub flags: u32,
        /// Seconds for which this is valid.
        pub valid_for: i32,
        /// Path of the file system on this server.
        pub root: PathName<'a>,
        /// The locations.
        pub items: Array<'a, LocationItem<'a>, MAX_LOCATIONS>,
    }
}

xdr_enum! {
    /// How a file system changes (`fs4_status_type`, RFC 8881 §11.18).
    pub enum FsStatusType ("fs4_status_type") {
        /// It does not.
        Fixed = 1,
        /// It is replaced by new versions.
        Updated = 2,
        /// It is one of several versions.
        Versioned = 3,
        /// It is written.
        Writable = 4,
        /// It is a referral.
        Referral = 5,
    }
}

xdr_struct! {
    /// Status of a file system (`fs4_status`, RFC 8881 §11.18).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FsStatus<'a> {
        /// Whether it is not here.
        pub absent: bool,
        /// How it changes.
        pub kind: FsStatusType,
        /// Origin.
        pub source: Text<'a>,
        /// Name of the version.
        pub current: Text<'a>,
        /// Age in seconds; negative if that is not known.
        pub age: i32,
        /// When this version was made.
        pub version: Time,
    }
}

xdr_struct! {
    /// Wish for the layout of a new file (`layouthint4`, RFC 8881 §3.3.19).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LayoutHint<'a> {
        /// Layout type.
        pub kind: LayoutType,
        /// Wish in the form of that type.
        pub body: Bytes<'a, MAX_LAYOUT_BODY>,
    }
}

xdr_struct! {
    /// Sizes below which I/O should go to the metadata server (`threshold_item4`, RFC 8881 §3.3.22).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Threshold<'a> {
        /// Layout type.
        pub kind: LayoutType,
        /// The thresholds that are in the list.
        pub hints: Bitmap,
        /// Their values, in the order of their numbers.
        pub list: Bytes<'a, MAX_LAYOUT_BODY>,
    }
}

/// Thresholds for each layout type (`mdsthreshold4`, RFC 8881 §3.3.23).
pub type MdsThreshold<'a> = Array<'a, Threshold<'a>, MAX_LAYOUT_TYPES>;

xdr_struct! {
    /// Retention of a file (`retention_get4`, RFC 8881 §5.13.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RetentionGet {
        /// Seconds; all ones are without end.
        pub duration: u64,
        /// When it began, if it did.
        pub begin: Option<Time>,
    }
}

xdr_struct! {
    /// Retention to set (`retention_set4`, RFC 8881 §5.13.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RetentionSet {
        /// Whether to begin now.
        pub enable: bool,
        /// Seconds, if they are to be set.
        pub duration: Option<u64>,
    }
}

xdr_struct! {
    /// Bits of a mode to set (`mode_masked4`, RFC 8881 §6.2.5).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ModeMasked {
        /// Their values.
        pub value: u32,
        /// The bits that change.
        pub mask: u32,
    }
}

xdr_struct! {
    /// Mode of a new object, with the umask of its creator (`mode_umask4`, RFC 8275).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ModeUmask {
        /// Mode that the creator asked for.
        pub mode: u32,
        /// Bits to clear, unless a list is inherited.
        pub umask: u32,
    }
}

xdr_enum! {
    /// Properties of the change attribute (`change_attr_type4`, RFC 7862 §12.2.3).
    pub enum ChangeAttributeType ("change_attr_type4") {
        /// Every change increases it.
        MonotonicIncrement = 0,
        /// Every change increases it by one.
        VersionCounter = 1,
        /// The same, but not for writes by pNFS.
        VersionCounterNoPnfs = 2,
        /// It is made from `time_metadata`.
        TimeMetadata = 3,
        /// Nothing is known of it.
        Undefined = 4,
    }
}

xdr_struct! {
    /// Security label (`sec_label4`, RFC 7862 §12.2.4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SecurityLabel<'a> {
        /// Number of the label format.
        pub format: u32,
        /// Number of the policy.
        pub policy: u32,
        /// The label.
        pub label: Bytes<'a, MAX_SECURITY_LABEL>,
    }
}

xdr_struct! {
    /// Arguments of OPEN that a server knows, each as a set of values or of bit numbers
    /// (`open_arguments4`, RFC 9754 §3).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenArguments {
        /// Values of `share_access`.
        pub share_access: Bitmap,
        /// Values of `share_deny`.
        pub share_deny: Bitmap,
        /// Wishes about delegations in `share_access`.
        pub share_access_want: Bitmap,
        /// Claims.
        pub open_claim: Bitmap,
        /// Modes of creation.
        pub create_mode: Bitmap,
    }
}
