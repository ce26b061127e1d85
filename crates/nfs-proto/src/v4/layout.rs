//! Layouts and devices of pNFS (RFC 8881 §18.40 to §18.44, RFC 7862 §15.6, §15.7). The parts whose form a
//! layout type decides are opaque.

use crate::v4::array::Array;
use crate::v4::bitmap::Bitmap;
use crate::v4::limits::{MAX_DEVICES, MAX_LAYOUT_BODY, MAX_LAYOUT_ERRORS, MAX_LAYOUTS};
use crate::v4::status::{Refused, Res, Status};
use crate::v4::types::{DeviceId, LayoutType, StateId, Time};
use crate::{Bytes, Cookie, CookieVerifier};

/// A part of a layout, in the form of its type.
pub type LayoutBody<'a> = Bytes<'a, MAX_LAYOUT_BODY>;

xdr_enum! {
    /// I/O that a layout is for (`layoutiomode4`, RFC 8881 §3.3.20).
    pub enum IoMode ("layoutiomode4") {
        /// Reading.
        Read = 1,
        /// Reading and writing.
        ReadWrite = 2,
        /// Both kinds of layouts, where they are returned.
        Any = 3,
    }
}

xdr_struct! {
    /// Something in the form of a layout type (`device_addr4`, `layout_content4`, `layoutupdate4`,
    /// RFC 8881 §3.3.15 to §3.3.18).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LayoutContent<'a> {
        /// The type.
        pub kind: LayoutType,
        /// The content.
        pub body: LayoutBody<'a>,
    }
}

xdr_struct! {
    /// Arguments of GETDEVICEINFO (RFC 8881 §18.40.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetDeviceInfoArgs {
        /// The device.
        pub device: DeviceId,
        /// Layout type.
        pub kind: LayoutType,
        /// Most bytes of the address.
        pub max_count: u32,
        /// Notifications wanted.
        pub notifications: Bitmap,
    }
}

xdr_struct! {
    /// Result of GETDEVICEINFO (RFC 8881 §18.40.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetDeviceInfoOk<'a> {
        /// Address of the device.
        pub address: LayoutContent<'a>,
        /// Notifications.
        pub notifications: Bitmap,
    }
}

/// Result of GETDEVICEINFO: `NFS4ERR_TOOSMALL` says how many bytes are needed (RFC 8881 §18.40.2).
pub type GetDeviceInfoRes<'a> =
    Result<GetDeviceInfoOk<'a>, Refused<u32, { Status::TooSmall as u32 }>>;

xdr_struct! {
    /// Arguments of GETDEVICELIST (RFC 8881 §18.41.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetDeviceListArgs {
        /// Layout type.
        pub kind: LayoutType,
        /// Most devices.
        pub max_devices: u32,
        /// From behind this place.
        pub cookie: Cookie,
        /// The verifier that came with the cookie.
        pub verifier: CookieVerifier,
    }
}

xdr_struct! {
    /// Result of GETDEVICELIST (RFC 8881 §18.41.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetDeviceListOk<'a> {
        /// The place behind these devices.
        pub cookie: Cookie,
        /// Verifier to send with it.
        pub verifier: CookieVerifier,
        /// The devices.
        pub devices: Array<'a, DeviceId, MAX_DEVICES>,
        /// Whether the list ends with them.
        pub eof: bool,
    }
}

xdr_struct! {
    /// Arguments of LAYOUTCOMMIT (RFC 8881 §18.42.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LayoutCommitArgs<'a> {
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// Whether it is for writes from before the server's restart.
        pub reclaim: bool,
        /// The layouts.
        pub state: StateId,
        /// Offset of the last byte that was written.
        pub last_write: Option<u64>,
        /// When data was changed.
        pub time_modify: Option<Time>,
        /// Changes, in the form of the layout type.
        pub update: LayoutContent<'a>,
    }
}

xdr_struct! {
    /// Result of LAYOUTCOMMIT (RFC 8881 §18.42.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LayoutCommitOk {
        /// Size of the file, if that changed.
        pub new_size: Option<u64>,
    }
}

xdr_struct! {
    /// Arguments of LAYOUTGET (RFC 8881 §18.43.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LayoutGetArgs {
        /// Whether to tell when a layout can be had.
        pub signal_available: bool,
        /// Layout type.
        pub kind: LayoutType,
        /// I/O that the layout is for.
        pub mode: IoMode,
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes wanted.
        pub length: u64,
        /// Number of bytes needed.
        pub min_length: u64,
        /// An open, a delegation or locks, or earlier layouts.
        pub state: StateId,
        /// Most bytes of the layouts.
        pub max_count: u32,
    }
}

xdr_struct! {
    /// A layout (`layout4`, RFC 8881 §3.3.17).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Layout<'a> {
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// I/O that it is for.
        pub mode: IoMode,
        /// The layout, in the form of its type.
        pub content: LayoutContent<'a>,
    }
}

xdr_struct! {
    /// Result of LAYOUTGET (RFC 8881 §18.43.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LayoutGetOk<'a> {
        /// Whether the layouts have to be returned before the file is closed.
        pub return_on_close: bool,
        /// The layouts' state.
        pub state: StateId,
        /// The layouts.
        pub layouts: Array<'a, Layout<'a>, MAX_LAYOUTS>,
    }
}

/// Result of LAYOUTGET: `NFS4ERR_LAYOUTTRYLATER` says whether the server will tell (RFC 8881 §18.43.2).
pub type LayoutGetRes<'a> =
    Result<LayoutGetOk<'a>, Refused<bool, { Status::LayoutTryLater as u32 }>>;

xdr_struct! {
    /// Layouts of one file (`layoutreturn_file4`, RFC 8881 §18.44.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LayoutReturnFile<'a> {
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// The layouts' state.
        pub state: StateId,
        /// More, in the form of the layout type.
        pub body: LayoutBody<'a>,
    }
}

xdr_union! {
    /// Layouts to return (`layoutreturn4`, RFC 8881 §18.44.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LayoutReturn<'a> ("layoutreturn_type4") {
        /// Of a file.
        File(LayoutReturnFile<'a>) = 1,
        /// Of a file system.
        FileSystem = 2,
        /// All.
        All = 3,
    }
}

xdr_struct! {
    /// Arguments of LAYOUTRETURN (RFC 8881 §18.44.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LayoutReturnArgs<'a> {
        /// Whether it is for layouts from before the server's restart.
        pub reclaim: bool,
        /// Layout type.
        pub kind: LayoutType,
        /// I/O that the layouts are for.
        pub mode: IoMode,
        /// The layouts.
        pub what: LayoutReturn<'a>,
    }
}

xdr_struct! {
    /// Result of LAYOUTRETURN (RFC 8881 §18.44.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LayoutReturnOk {
        /// State of the layouts that are left.
        pub state: Option<StateId>,
    }
}

xdr_struct! {
    /// An error of a device (`device_error4`, RFC 7862 §15.6.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DeviceError {
        /// The device.
        pub device: DeviceId,
        /// The error.
        pub status: Res<()>,
        /// Number of the operation.
        pub operation: u32,
    }
}

xdr_struct! {
    /// Arguments of LAYOUTERROR (RFC 7862 §15.6.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LayoutErrorArgs<'a> {
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// The layouts.
        pub state: StateId,
        /// The errors.
        pub errors: Array<'a, DeviceError, MAX_LAYOUT_ERRORS>,
    }
}

xdr_struct! {
    /// A number of operations (`io_info4`, RFC 7862 §15.7.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct IoInfo {
        /// Operations.
        pub count: u64,
        /// Bytes of them.
        pub bytes: u64,
    }
}

xdr_struct! {
    /// Arguments of LAYOUTSTATS (RFC 7862 §15.7.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LayoutStatsArgs<'a> {
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// The layouts.
        pub state: StateId,
        /// READs.
        pub read: IoInfo,
        /// WRITEs.
        pub write: IoInfo,
        /// The device.
        pub device: DeviceId,
        /// More, in the form of the layout type.
        pub update: LayoutContent<'a>,
    }
}
