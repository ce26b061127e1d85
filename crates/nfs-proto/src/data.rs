//! DDP-eligible items (RFC 8267 §4): file data, and the text of a symbolic link.

use crate::Wire;
use crate::limits::{MAX_DATA, MAX_PATH};
use oncrpc::xdr::{Error, Gather, Opaque, Reader, Writer};
use std::borrow::Cow;

macro_rules! eligible {
    ($(#[$meta:meta])* $name:ident, $limit:expr) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name<'a>(pub Opaque<'a>);

        impl $name<'_> {
            /// Bytes.
            pub fn len(&self) -> usize {
                self.0.len()
            }

            /// Whether there are no bytes.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// Returns the bytes in one piece; copies them only if they are in several.
            pub fn bytes(&self) -> Cow<'_, [u8]> {
                match &self.0 {
                    Opaque::Inline(bytes) => Cow::Borrowed(bytes),
                    Opaque::ByReference(pieces) => match pieces.as_slice() {
                        [] => Cow::Borrowed(&[]),
                        [one] => Cow::Borrowed(one),
                        several => Cow::Owned(several.concat()),
                    },
                }
            }

            /// Returns the bytes in pieces; inline bytes are copied.
            pub fn into_gather(self) -> Gather {
                self.0.into_gather()
            }
        }

        impl<'a> From<&'a [u8]> for $name<'a> {
            fn from(bytes: &'a [u8]) -> Self {
                Self(Opaque::Inline(bytes))
            }
        }

        impl From<Gather> for $name<'_> {
            fn from(pieces: Gather) -> Self {
                Self(Opaque::ByReference(pieces))
            }
        }

        impl PartialEq for $name<'_> {
            fn eq(&self, other: &Self) -> bool {
                self.bytes() == other.bytes()
            }
        }

        impl Eq for $name<'_> {}

        impl<'a> Wire<'a> for $name<'a> {
            const MAX: usize = 4;

            fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
                r.item($limit).map(Self)
            }

            /// Always writes a by-reference item, since a responder must reduce an eligible result
            /// for which a chunk is offered (RFC 8166 §6.1). Borrowed bytes are copied.
            fn write(&self, w: &mut Writer) {
                w.item(self.0.clone().into_gather());
            }

            #[inline]
            fn hand_over(self, w: &mut Writer) {
                w.item(self.into_gather());
            }
        }
    };
}

eligible! {
    /// File data of READ and WRITE.
    Data, MAX_DATA
}
eligible! {
    /// Text of a symbolic link (`nfspath3`), in SYMLINK and READLINK.
    Path, MAX_PATH
}
