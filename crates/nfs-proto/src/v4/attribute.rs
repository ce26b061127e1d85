//! Attributes by number (RFC 8881 §5, RFC 7862 §12.2, RFC 8275, RFC 8276, RFC 9754).

use crate::v4::acl::{Acl, Acl41, AclSupport};
use crate::v4::bitmap::Bitmap;
use crate::v4::locations::{
    ChangeAttributeType, ChangePolicy, FsLocations, FsLocationsInfo, FsStatus, LayoutHint,
    LayoutTypes, MdsThreshold, ModeMasked, ModeUmask, OpenArguments, RetentionGet, RetentionSet,
    SecurityLabel, Text,
};
use crate::v4::status::Res;
use crate::v4::types::{ChangeId, FileType, FsId, Handle, Principal, SetTime, Time};
use crate::{Device, FileId, Wire};
use oncrpc::xdr::{Error, Reader, Writer};

/// Access that a client has to an attribute (RFC 8881 §5.6, §5.7, column "Acc").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeAccess {
    /// Get-only.
    R,
    /// Set-only.
    W,
    /// Both.
    RW,
}

/// Declares all attributes: name, type, number, access.
macro_rules! attributes {
    ($( $(#[$meta:meta])* $name:ident($ty:ty) = $number:literal, $access:ident; )*) => {
        /// Number of an attribute (`FATTR4_*`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum AttributeNumber {
            $( $(#[$meta])* $name = $number, )*
        }

        impl AttributeNumber {
            /// Every attribute, in ascending order.
            pub const ALL: &'static [Self] = &[ $( Self::$name, )* ];

            /// Returns the attribute of a number. `None` if it is not known.
            pub fn new(number: u32) -> Option<Self> {
                match number {
                    $( $number => Some(Self::$name), )*
                    _ => None,
                }
            }

            /// Returns the access that clients have: to get a set-only attribute, or to set a get-only one,
            /// is `NFS4ERR_INVAL` (RFC 8881 §5.5).
            pub fn access(self) -> AttributeAccess {
                match self {
                    $( Self::$name => AttributeAccess::$access, )*
                }
            }
        }

        /// An attribute with its value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Attribute<'a> {
            $( $(#[$meta])* $name($ty), )*
        }

        impl<'a> Attribute<'a> {
            /// Returns the number of the attribute.
            pub fn number(&self) -> AttributeNumber {
                match self {
                    $( Self::$name(_) => AttributeNumber::$name, )*
                }
            }

            /// Reads the value of an attribute.
            ///
            /// # Errors
            ///
            /// If the bytes are not such a value.
            pub fn parse(number: AttributeNumber, r: &mut Reader<'a>) -> Result<Self, Error> {
                Ok(match number {
                    $( AttributeNumber::$name => Self::$name(Wire::parse(r)?), )*
                })
            }

            /// Writes the value.
            pub fn write(&self, w: &mut Writer) {
                match self {
                    $( Self::$name(value) => value.write(w), )*
                }
            }
        }

        #[cfg(test)]
        impl Attribute<'_> {
            /// A random value of an attribute.
            pub(crate) fn sample(number: AttributeNumber, rng: &mut crate::tests::Rng) -> Self {
                match number {
                    $( AttributeNumber::$name => Self::$name(crate::tests::Sample::sample(rng)), )*
                }
            }
        }
    };
}

attributes! {
    /// `supported_attrs`: the attributes that the server supports for this object (RFC 8881 §5.8.1.1).
    SupportedAttrs(Bitmap) = 0, R;
    /// `type`: type of the object (RFC 8881 §5.8.1.2).
    Type(FileType) = 1, R;
    /// `fh_expire_type`: how long the handle is valid; 0 without end (RFC 8881 §5.8.1.3, §4.2.3).
    FhExpireType(u32) = 2, R;
    /// `change`: changes with data and metadata (RFC 8881 §5.8.1.4).
    Change(ChangeId) = 3, R;
    /// `size`: bytes of data (RFC 8881 §5.8.1.5).
    Size(u64) = 4, RW;
    /// `link_support`: hard links (RFC 8881 §5.8.1.6).
    LinkSupport(bool) = 5, R;
    /// `symlink_support`: symbolic links (RFC 8881 §5.8.1.7).
    SymlinkSupport(bool) = 6, R;
    /// `named_attr`: whether the object has named attributes (RFC 8881 §5.8.1.8).
    NamedAttr(bool) = 7, R;
    /// `fsid`: id of the file system (RFC 8881 §5.8.1.9).
    FsId(FsId) = 8, R;
    /// `unique_handles`: whether two handles are always two objects (RFC 8881 §5.8.1.10).
    UniqueHandles(bool) = 9, R;
    /// `lease_time`: seconds of a lease (RFC 8881 §5.8.1.11).
    LeaseTime(u32) = 10, R;
    /// `rdattr_error`: why the attributes of an entry of READDIR are missing (RFC 8881 §5.8.1.12).
    RdattrError(Res<()>) = 11, R;
    /// `acl`: access control list (RFC 8881 §6.2.1).
    Acl(Acl<'a>) = 12, RW;
    /// `aclsupport`: kinds of entries that are supported (RFC 8881 §6.2.1.2).
    AclSupport(AclSupport) = 13, R;
    /// `archive`: whether the object was archived since its last change (RFC 8881 §5.8.2.1).
    Archive(bool) = 14, RW;
    /// `cansettime`: whether times can be set (RFC 8881 §5.8.2.2).
    CanSetTime(bool) = 15, R;
    /// `case_insensitive`: whether names that differ in case only are the same (RFC 8881 §5.8.2.3).
    CaseInsensitive(bool) = 16, R;
    /// `case_preserving`: whether the case of names is kept (RFC 8881 §5.8.2.4).
    CasePreserving(bool) = 17, R;
    /// `chown_restricted`: whether only a privileged user may change an owner (RFC 8881 §5.8.2.6).
    ChownRestricted(bool) = 18, R;
    /// `filehandle`: the handle (RFC 8881 §5.8.1.13).
    FileHandle(Handle<'a>) = 19, R;
    /// `fileid`: number of the object in its file system (RFC 8881 §5.8.2.7).
    FileId(FileId) = 20, R;
    /// `files_avail`: files that the caller can still create (RFC 8881 §5.8.2.8).
    FilesAvail(u64) = 21, R;
    /// `files_free`: files that can still be created (RFC 8881 §5.8.2.9).
    FilesFree(u64) = 22, R;
    /// `files_total`: largest number of files (RFC 8881 §5.8.2.10).
    FilesTotal(u64) = 23, R;
    /// `fs_locations`: locations of the file system (RFC 8881 §5.8.2.12).
    FsLocations(FsLocations<'a>) = 24, R;
    /// `hidden`: whether Windows hides the object (RFC 8881 §5.8.2.15).
    Hidden(bool) = 25, RW;
    /// `homogeneous`: whether PATHCONF is the same for every object (RFC 8881 §5.8.2.16).
    Homogeneous(bool) = 26, R;
    /// `maxfilesize`: most bytes of a file (RFC 8881 §5.8.2.17).
    MaxFileSize(u64) = 27, R;
    /// `maxlink`: most names of an object (RFC 8881 §5.8.2.18).
    MaxLink(u32) = 28, R;
    /// `maxname`: most bytes of a name (RFC 8881 §5.8.2.19).
    MaxName(u32) = 29, R;
    /// `maxread`: most bytes of a READ (RFC 8881 §5.8.2.20).
    MaxRead(u64) = 30, R;
    /// `maxwrite`: most bytes of a WRITE (RFC 8881 §5.8.2.21).
    MaxWrite(u64) = 31, R;
    /// `mimetype`: MIME type (RFC 8881 §5.8.2.22).
    MimeType(Text<'a>) = 32, RW;
    /// `mode`: permission bits, and set-user-ID, set-group-ID and sticky (RFC 8881 §6.2.4).
    Mode(u32) = 33, RW;
    /// `no_trunc`: whether a name that is too long is refused, and not cut (RFC 8881 §5.8.2.24).
    NoTrunc(bool) = 34, R;
    /// `numlinks`: number of names (RFC 8881 §5.8.2.25).
    NumLinks(u32) = 35, R;
    /// `owner`: owner (RFC 8881 §5.8.2.26, §5.9).
    Owner(Principal<'a>) = 36, RW;
    /// `owner_group`: group (RFC 8881 §5.8.2.27, §5.9).
    OwnerGroup(Principal<'a>) = 37, RW;
    /// `quota_avail_hard`: bytes up to the hard limit of the quota (RFC 8881 §5.8.2.28).
    QuotaAvailHard(u64) = 38, R;
    /// `quota_avail_soft`: bytes up to its soft limit (RFC 8881 §5.8.2.29).
    QuotaAvailSoft(u64) = 39, R;
    /// `quota_used`: bytes that count for the quota (RFC 8881 §5.8.2.30).
    QuotaUsed(u64) = 40, R;
    /// `rawdev`: numbers of a device (RFC 8881 §5.8.2.31).
    RawDev(Device) = 41, R;
    /// `space_avail`: bytes free to the caller (RFC 8881 §5.8.2.32).
    SpaceAvail(u64) = 42, R;
    /// `space_free`: bytes free (RFC 8881 §5.8.2.33).
    SpaceFree(u64) = 43, R;
    /// `space_total`: size of the file system in bytes (RFC 8881 §5.8.2.34).
    SpaceTotal(u64) = 44, R;
    /// `space_used`: bytes of disk space (RFC 8881 §5.8.2.35).
    SpaceUsed(u64) = 45, R;
    /// `system`: whether it is a system file for Windows (RFC 8881 §5.8.2.36).
    System(bool) = 46, RW;
    /// `time_access`: when data was last read (RFC 8881 §5.8.2.37).
    TimeAccess(Time) = 47, R;
    /// `time_access_set`: sets `time_access` (RFC 8881 §5.8.2.38).
    TimeAccessSet(SetTime) = 48, W;
    /// `time_backup`: time of the last backup (RFC 8881 §5.8.2.39).
    TimeBackup(Time) = 49, RW;
    /// `time_create`: when the object was created (RFC 8881 §5.8.2.40).
    TimeCreate(Time) = 50, RW;
    /// `time_delta`: resolution of the server's times (RFC 8881 §5.8.2.41).
    TimeDelta(Time) = 51, R;
    /// `time_metadata`: when metadata was last changed (RFC 8881 §5.8.2.42).
    TimeMetadata(Time) = 52, R;
    /// `time_modify`: when data was last changed (RFC 8881 §5.8.2.43).
    TimeModify(Time) = 53, R;
    /// `time_modify_set`: sets `time_modify` (RFC 8881 §5.8.2.44).
    TimeModifySet(SetTime) = 54, W;
    /// `mounted_on_fileid`: `fileid` of the directory on which the file system is mounted (RFC 8881 §5.8.2.23).
    MountedOnFileId(FileId) = 55, R;
    /// `dir_notif_delay`: delay of notifications about a directory's attributes (RFC 8881 §5.11.1).
    DirNotifDelay(Time) = 56, R;
    /// `dirent_notif_delay`: delay of those about its entries (RFC 8881 §5.11.2).
    DirentNotifDelay(Time) = 57, R;
    /// `dacl`: entries that allow and deny, with flags (RFC 8881 §6.2.2).
    Dacl(Acl41<'a>) = 58, RW;
    /// `sacl`: entries that log and alarm, with flags (RFC 8881 §6.2.3).
    Sacl(Acl41<'a>) = 59, RW;
    /// `change_policy`: changes with the policies for the file system (RFC 8881 §5.8.2.5).
    ChangePolicy(ChangePolicy) = 60, R;
    /// `fs_status`: how the file system changes (RFC 8881 §5.8.2.14).
    FsStatus(FsStatus<'a>) = 61, R;
    /// `fs_layout_types`: layout types of the file system (RFC 8881 §5.12.1).
    FsLayoutTypes(LayoutTypes<'a>) = 62, R;
    /// `layout_hint`: wish for the layout (RFC 8881 §5.12.4).
    LayoutHint(LayoutHint<'a>) = 63, W;
    /// `layout_types`: layout types of the file (RFC 8881 §5.12.5).
    LayoutTypes(LayoutTypes<'a>) = 64, R;
    /// `layout_blksize`: suggested multiple for sizes of I/O (RFC 8881 §5.12.3).
    LayoutBlockSize(u32) = 65, R;
    /// `layout_alignment`: suggested multiple for offsets of I/O (RFC 8881 §5.12.2).
    LayoutAlignment(u32) = 66, R;
    /// `fs_locations_info`: locations with their properties (RFC 8881 §5.8.2.13).
    FsLocationsInfo(FsLocationsInfo<'a>) = 67, R;
    /// `mdsthreshold`: sizes of I/O that should go to the metadata server (RFC 8881 §5.12.6).
    MdsThreshold(MdsThreshold<'a>) = 68, R;
    /// `retention_get`: retention of a file (RFC 8881 §5.13.1).
    RetentionGet(RetentionGet) = 69, R;
    /// `retention_set`: sets that (RFC 8881 §5.13.2).
    RetentionSet(RetentionSet) = 70, W;
    /// `retentevt_get`: retention of a file by an event (RFC 8881 §5.13.3).
    RetentEvtGet(RetentionGet) = 71, R;
    /// `retentevt_set`: sets that (RFC 8881 §5.13.4).
    RetentEvtSet(RetentionSet) = 72, W;
    /// `retention_hold`: holds on a file (RFC 8881 §5.13.5).
    RetentionHold(u64) = 73, RW;
    /// `mode_set_masked`: sets some bits of `mode` (RFC 8881 §6.2.5).
    ModeSetMasked(ModeMasked) = 74, W;
    /// `suppattr_exclcreat`: attributes that EXCLUSIVE4_1 can set (RFC 8881 §5.8.1.14).
    SuppAttrExclCreat(Bitmap) = 75, R;
    /// `fs_charset_cap`: whether names have to be UTF-8 (RFC 8881 §14.4).
    FsCharsetCap(u32) = 76, R;
    /// `clone_blksize`: multiple for offsets and sizes of CLONE (RFC 7862 §12.2.1).
    CloneBlockSize(u32) = 77, R;
    /// `space_freed`: bytes that removing the object would free (RFC 7862 §12.2.2).
    SpaceFreed(u64) = 78, R;
    /// `change_attr_type`: properties of `change` (RFC 7862 §12.2.3).
    ChangeAttrType(ChangeAttributeType) = 79, R;
    /// `sec_label`: security label (RFC 7862 §12.2.4).
    SecLabel(SecurityLabel<'a>) = 80, RW;
    /// `mode_umask`: mode of a new object, and umask (RFC 8275).
    ModeUmask(ModeUmask) = 81, W;
    /// `xattr_support`: whether the object can have extended attributes (RFC 8276 §8.2.1).
    XattrSupport(bool) = 82, R;
    /// `offline`: whether data is on slow storage (RFC 9754 §2).
    Offline(bool) = 83, R;
    /// `time_deleg_access`: `time_access` as the holder of a delegation knows it (RFC 9754 §5).
    TimeDelegAccess(Time) = 84, RW;
    /// `time_deleg_modify`: `time_modify` as it knows it (RFC 9754 §5).
    TimeDelegModify(Time) = 85, RW;
    /// `open_arguments`: arguments of OPEN that the server knows (RFC 9754 §3).
    OpenArguments(OpenArguments) = 86, R;
}
