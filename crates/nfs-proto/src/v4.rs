//! NFS versions 4.1 and 4.2: COMPOUND, its operations and attributes, and the callback program
//! (RFC 8881 with RFC 5662, RFC 7862 with RFC 7863, RFC 8276, RFC 9754).
//!
//! Both directions: a server reads [`CompoundArgs`] operation by operation and answers with a
//! [`ReplyWriter`]; a client writes with a [`CallWriter`] and reads [`CompoundRes`]. Callbacks are
//! [`CbCompoundArgs`](callback::CbCompoundArgs) and [`CbCompoundRes`](callback::CbCompoundRes). The operations of minor version 0 that later ones
//! must not implement are read, too.
//!
//! Values borrow from their message: an [`Array`] is a place whose elements are read again when they are
//! wanted, and a [`Fattr`] is one whose attributes are not read before. Reading a call allocates
//! nothing. DDP-eligible items are the data of READ and WRITE, and the text of CREATE and READLINK
//! (RFC 8267 §6.1).
//!
//! # Example
//!
//! A server that executes nothing but PUTROOTFH and GETATTR of a type:
//!
//! ```
//! use nfs_proto::v4::{
//!     ArgOp, Attribute, AttributeNumber, CallWriter, CompoundArgs, FileType, Operation,
//!     ReplyWriter, ResOp, Status, Tag, file, fattr::write_fattr,
//! };
//! use nfs_proto::v4::Bitmap;
//! use oncrpc::xdr::{Reader, Writer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut w = Writer::default();
//! let mut call = CallWriter::new(&mut w, Tag::default(), 1);
//! call.push(ArgOp::PutRootFh);
//! let wanted = Bitmap::of([AttributeNumber::Type as u32]);
//! call.push(ArgOp::GetAttr(file::GetAttrArgs { wanted }));
//! call.finish();
//! let message = w.finish();
//!
//! let mut args = CompoundArgs::parse(Reader::from(&message))?;
//! let mut reply = ReplyWriter::new(Writer::default(), args.tag, Ok(()));
//! while let Some(operation) = args.next_operation() {
//!     match operation {
//!         Ok(ArgOp::PutRootFh) => reply.push(ResOp::PutRootFh(Ok(()))),
//!         Ok(ArgOp::GetAttr(args)) => reply.push_with(Operation::GetAttr, |w| {
//!             write_fattr(w, &args.wanted, |number| match number {
//!                 AttributeNumber::Type => Some(Attribute::Type(FileType::Directory)),
//!                 _ => None,
//!             });
//!             Ok(())
//!         }),
//!         Ok(other) => reply.push(ResOp::failed(other.number(), Status::NotSupported)),
//!         Err(bad) => reply.push(bad.result()),
//!     }
//!     if reply.status().is_err() {
//!         break;
//!     }
//! }
//! assert_eq!(reply.stream_len(), 12 + 8 + 8 + 8 + 8);
//! let _message = reply.finish().finish();
//! # Ok(())
//! # }
//! ```

#[macro_use]
mod macros;

pub mod acl;
mod array;
mod attribute;
mod bitmap;
pub mod callback;
mod compound;
pub mod copy;
pub mod delegation;
pub mod directory;
pub mod fattr;
pub mod file;
pub mod layout;
pub mod limits;
pub mod locations;
pub mod lock;
pub mod obsolete;
pub mod open;
mod operation;
pub mod security;
pub mod session;
mod status;
mod types;
pub mod xattr;

pub use array::Array;
pub use attribute::{Attribute, AttributeAccess, AttributeNumber};
pub use bitmap::Bitmap;
pub use compound::{
    BadOperation, CallWriter, CompoundArgs, CompoundRes, Procedure, ReplyWriter, Tag,
};
pub use fattr::{BadAttribute, Fattr};
pub use operation::{ArgOp, Operation, ResOp};
pub use status::{Outcome, Refused, Res, Status};
pub use types::{
    ChangeId, ChangeInfo, ClientId, DeviceId, FileType, FsId, Handle, Identifier, LayoutType,
    NetAddress, Principal, SequenceId, SessionId, SetTime, SlotId, SpecialStateId, StateId,
    StateOwner, Time, Verifier,
};

/// Returns the largest of some sizes.
const fn largest(sizes: &[usize]) -> usize {
    let mut largest = 0;
    let mut at = 0;
    while at < sizes.len() {
        if sizes[at] > largest {
            largest = sizes[at];
        }
        at += 1;
    }
    largest
}

#[cfg(test)]
mod tests;
