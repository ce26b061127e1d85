//! View of operations: every field as received, without validation.

use super::code;
use crate::v2::characteristics::{SpecView, SubsetView, XcharValView};
use oncrpc::xdr;
use oncrpc::xdr::Reader;

/// View of an operation, from the information of an RDMA2_OPTIONAL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationView<'a> {
    /// The fields that are present.
    pub fields: OperationFields<'a>,
    /// Number of trailing bytes.
    pub trailing: usize,
    /// The place at which the operation became unreadable, if it did.
    pub error: Option<xdr::Error>,
}

/// The fields of each operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationFields<'a> {
    /// ROPT_INITXCH.
    InitXch {
        /// `optixch_start`.
        start: SpecView<'a>,
        /// `optixch_nochg`.
        nochg: SubsetView,
    },
    /// ROPT_REQXCH.
    ReqXch {
        /// `optreqxch_want`.
        want: SpecView<'a>,
    },
    /// ROPT_RESPXCH.
    RespXch {
        /// `optrespxch_done`.
        done: SubsetView,
        /// `optrespxch_rej`.
        rejected: SubsetView,
        /// `optrespxch_pend`.
        pending: SubsetView,
    },
    /// ROPT_UPDXCH.
    UpdXch {
        /// `optupdxch_now`.
        now: XcharValView<'a>,
        /// `optupdxch_pendclr`, if present.
        pendclr: Option<u32>,
    },
}

impl<'a> OperationView<'a> {
    /// Reads an operation of xcharext with this number; `None` if the number is unknown.
    pub fn new(operation: u32, info: &'a [u8]) -> Option<Self> {
        let mut fields = match operation {
            code::INITXCH => OperationFields::InitXch {
                start: SpecView::default(),
                nochg: SubsetView::default(),
            },
            code::REQXCH => OperationFields::ReqXch {
                want: SpecView::default(),
            },
            code::RESPXCH => OperationFields::RespXch {
                done: SubsetView::default(),
                rejected: SubsetView::default(),
                pending: SubsetView::default(),
            },
            code::UPDXCH => OperationFields::UpdXch {
                now: XcharValView::default(),
                pendclr: None,
            },
            _ => return None,
        };
        let mut r = Reader::new(info);
        let error = fields.read(&mut r).err();
        Some(Self {
            fields,
            trailing: r.remaining(),
            error,
        })
    }
}

impl<'a> OperationFields<'a> {
    fn read(&mut self, r: &mut Reader<'a>) -> Result<(), xdr::Error> {
        match self {
            Self::InitXch { start, nochg } => {
                start.read(r)?;
                nochg.read(r)
            }
            Self::ReqXch { want } => want.read(r),
            Self::RespXch {
                done,
                rejected,
                pending,
            } => {
                done.read(r)?;
                rejected.read(r)?;
                pending.read(r)
            }
            Self::UpdXch { now, pendclr } => {
                now.read(r)?;
                *pendclr = Some(r.u32()?);
                Ok(())
            }
        }
    }
}
