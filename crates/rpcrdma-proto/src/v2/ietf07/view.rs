//! Views of a header: every field as received, without validation.

use super::header_type;
use crate::v2::characteristics::SpecView;
use crate::wire::header::{ErrorView, ListsView};
use oncrpc::xdr;
use oncrpc::xdr::Reader;
use verbs::Segment;

/// View of the rest of a header after the four words of the prefix, by header type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyView<'a> {
    /// Body of an RDMA2_ERROR. The two words behind the code are the arguments of that error, if it
    /// has any.
    Error(ErrorView),
    /// An RDMA2_GRANT, which has no body.
    Grant,
    /// Body of an RDMA2_CONNPROP_MIDDLE or RDMA2_CONNPROP_FINAL.
    Properties(PropertiesView<'a>),
    /// Body of a call or a reply, whole or the last part.
    Rpc(RpcView),
    /// `rdma_remaining` of an RDMA2_CALL_MIDDLE or RDMA2_REPLY_MIDDLE, if present.
    Part(Option<u32>),
    /// The header type is unknown.
    Unknown,
}

/// View of a set of properties, which has the form of a set of characteristics (§5.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertiesView<'a> {
    /// The properties that are present; ids may occur twice.
    pub set: SpecView<'a>,
    /// The place at which the set became unreadable, if it did.
    pub error: Option<xdr::Error>,
}

/// View of the header of a call or a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RpcView {
    /// `rdma_inv_handle`, if present: of calls.
    pub invalidate: Option<u32>,
    /// `rdma_call` of an RDMA2_CALL_EXTERNAL: each segment with its Position.
    pub call_chunk: Vec<(u32, Segment)>,
    /// The other lists of this header type. Their `len` covers everything after the fixed words,
    /// and their `error` is where any of it became unreadable.
    pub lists: ListsView,
}

impl<'a> BodyView<'a> {
    /// Reads the rest of a message of this header type.
    pub fn new(htype: u32, body: &'a [u8]) -> Self {
        match htype {
            header_type::ERROR => Self::Error(ErrorView::new(body)),
            header_type::GRANT => Self::Grant,
            header_type::CONNPROP_MIDDLE | header_type::CONNPROP_FINAL => {
                let mut set = SpecView::default();
                let error = set.read(&mut Reader::new(body)).err();
                Self::Properties(PropertiesView { set, error })
            }
            header_type::CALL_EXTERNAL
            | header_type::CALL_INLINE
            | header_type::REPLY_EXTERNAL
            | header_type::REPLY_INLINE => Self::Rpc(RpcView::new(htype, body)),
            header_type::CALL_MIDDLE | header_type::REPLY_MIDDLE => {
                Self::Part(Reader::new(body).u32().ok())
            }
            _ => Self::Unknown,
        }
    }
}

impl RpcView {
    fn new(htype: u32, body: &[u8]) -> Self {
        let mut view = Self::default();
        let mut r = Reader::new(body);
        view.lists.error = view.read(htype, &mut r).err();
        view.lists.len = body.len() - r.remaining();
        view
    }

    fn read(&mut self, htype: u32, r: &mut Reader<'_>) -> Result<(), xdr::Error> {
        let is_call = matches!(htype, header_type::CALL_EXTERNAL | header_type::CALL_INLINE);
        if is_call {
            self.invalidate = Some(r.u32()?);
            if htype == header_type::CALL_EXTERNAL {
                let read = self.lists.read_reads(r);
                self.call_chunk = std::mem::take(&mut self.lists.reads);
                read?;
            }
            self.lists.read_reads(r)?;
        }
        self.lists.read_writes(r)?;
        if htype != header_type::REPLY_INLINE {
            self.lists.read_reply(r)?;
        }
        Ok(())
    }
}
