//! Extended attributes (RFC 8276 §8.4).

use crate::v4::array::Array;
use crate::v4::limits::{MAX_XATTR_NAMES, MAX_XATTR_VALUE};
use crate::{Bytes, Cookie, Filename};

/// Value of an extended attribute (`xattrvalue4`).
pub type XattrValue<'a> = Bytes<'a, MAX_XATTR_VALUE>;

xdr_struct! {
    /// Arguments of GETXATTR and REMOVEXATTR (RFC 8276 §8.4.1.1, §8.4.4.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct XattrArgs<'a> {
        /// Name, without a namespace.
        pub name: Filename<'a>,
    }
}

xdr_struct! {
    /// Result of GETXATTR (RFC 8276 §8.4.1.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GetXattrOk<'a> {
        /// Value.
        pub value: XattrValue<'a>,
    }
}

xdr_enum! {
    /// How SETXATTR treats an existing attribute (`setxattr_option4`, RFC 8276 §8.4.2.1).
    pub enum SetXattrOption ("setxattr_option4") {
        /// It is replaced, or a new one is made.
        Either = 0,
        /// It is an error.
        Create = 1,
        /// It is replaced; if there is none, it is an error.
        Replace = 2,
    }
}

xdr_struct! {
    /// Arguments of SETXATTR (RFC 8276 §8.4.2.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SetXattrArgs<'a> {
        /// How to treat an existing attribute.
        pub option: SetXattrOption,
        /// Name, without a namespace.
        pub name: Filename<'a>,
        /// Value.
        pub value: XattrValue<'a>,
    }
}

xdr_struct! {
    /// Arguments of LISTXATTRS (RFC 8276 §8.4.3.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ListXattrsArgs {
        /// From behind this place.
        pub cookie: Cookie,
        /// Most bytes of the whole result.
        pub max_count: u32,
    }
}

xdr_struct! {
    /// Result of LISTXATTRS (RFC 8276 §8.4.3.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ListXattrsOk<'a> {
        /// The place behind these names.
        pub cookie: Cookie,
        /// The names.
        pub names: Array<'a, Filename<'a>, MAX_XATTR_NAMES>,
        /// Whether the list ends with them.
        pub eof: bool,
    }
}
