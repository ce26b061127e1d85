//! Arguments of the operations of NFS version 4.

use super::super::shape::Shape::{
    Adds, AddsEach, AddsWords, Array, Attributes, Data, Item, Kept, KeptOption, Opaque, Optional,
    Unbounded, Union, Vector, Words,
};
use super::super::shape::{ANY, ATTRIBUTES, BITMAP, COMPONENT, STATEID, Shape, Shapes};
use super::operation as op;
use crate::limits::{
    MAX_DATA, MAX_DIRECTORY_REPLY, MAX_ELEMENTS, MAX_FLAVORS, MAX_OPAQUE, MAX_PATH,
    MAX_STATE_OWNER, MAX_V4_HANDLE,
};
use oncrpc::auth::{MAX_GIDS, MAX_MACHINE_NAME};

/// `opaque owner<NFS4_OPAQUE_LIMIT>` and identifiers with the same limit.
const OWNER: Shape = Opaque(MAX_STATE_OWNER);

/// `callback_sec_parms4<>` (RFC 8881 §18.33.1).
const CALLBACK_SECURITY: Shape = Array(
    MAX_FLAVORS,
    &[Union(
        &[
            (0, &[]),
            (
                1,
                &[
                    Words(1),
                    Opaque(MAX_MACHINE_NAME),
                    Words(2),
                    Vector(MAX_GIDS, 1),
                ],
            ),
            (6, &[Words(1), ANY, ANY]),
        ],
        None,
    )],
);

/// `netloc4` (RFC 7862 §4.4).
const NETLOC: Shape = Union(&[(1, &[ANY]), (2, &[ANY]), (3, &[ANY, ANY])], None);

const FATTR: Shapes = &[BITMAP, ATTRIBUTES];

/// `openflag4` (RFC 8881 §18.16.1).
const OPEN_HOW: Shape = Union(
    &[(
        1,
        &[Union(
            &[
                (0, FATTR),
                (1, FATTR),
                (2, &[Words(2)]),
                (3, &[Words(2), BITMAP, ATTRIBUTES]),
            ],
            None,
        )],
    )],
    Some(&[]),
);

/// `open_claim4` (RFC 8881 §18.16.1).
const OPEN_CLAIM: Shape = Union(
    &[
        (0, &[COMPONENT]),
        (1, &[Words(1)]),
        (2, &[STATEID, COMPONENT]),
        (3, &[COMPONENT]),
        (4, &[]),
        (5, &[STATEID]),
        (6, &[]),
    ],
    None,
);

/// `state_protect4_a` (RFC 8881 §18.35.1). The reply to `SP4_SSV` has handles without a limit.
const STATE_PROTECT: Shape = Union(
    &[
        (0, &[]),
        (1, &[BITMAP, BITMAP]),
        (
            2,
            &[
                Unbounded,
                BITMAP,
                BITMAP,
                Array(MAX_ELEMENTS, &[ANY]),
                Array(MAX_ELEMENTS, &[ANY]),
                Words(2),
            ],
        ),
    ],
    None,
);

/// Returns the arguments of an operation. `None` if it is not known.
pub(super) fn arguments(operation: u32) -> Option<Shapes> {
    Some(match operation {
        op::ACCESS => &[Words(1)],
        op::CLOSE => &[Words(1), STATEID],
        op::COMMIT => &[Words(3)],
        op::CREATE => &[
            Union(
                &[(3, &[Words(2)]), (4, &[Words(2)]), (5, &[Item(MAX_PATH)])],
                Some(&[]),
            ),
            COMPONENT,
            BITMAP,
            ATTRIBUTES,
        ],
        op::DELEGPURGE => &[Words(2)],
        op::DELEGRETURN => &[STATEID],
        op::GETATTR => &[Attributes],
        op::LINK => &[COMPONENT],
        op::LOCK => &[
            Words(6),
            Union(&[(0, &[STATEID, Words(1)]), (1, &[Words(8), OWNER])], None),
        ],
        op::LOCKT => &[Words(7), OWNER],
        op::LOCKU => &[Words(2), STATEID, Words(4)],
        op::LOOKUP => &[COMPONENT],
        op::NVERIFY | op::VERIFY => FATTR,
        op::OPEN => &[Words(5), OWNER, OPEN_HOW, OPEN_CLAIM],
        op::OPENATTR => &[Words(1)],
        op::OPEN_CONFIRM => &[STATEID, Words(1)],
        op::OPEN_DOWNGRADE => &[STATEID, Words(3)],
        op::PUTFH => &[Opaque(MAX_V4_HANDLE)],
        op::GETFH
        | op::LOOKUPP
        | op::PUTPUBFH
        | op::PUTROOTFH
        | op::READLINK
        | op::RESTOREFH
        | op::SAVEFH => &[],
        op::READ => &[STATEID, Words(2), Data(MAX_DATA)],
        op::READDIR => &[Words(5), Adds(MAX_DIRECTORY_REPLY), BITMAP],
        op::REMOVE => &[COMPONENT],
        op::RENAME => &[COMPONENT, COMPONENT],
        op::RENEW => &[Words(2)],
        op::SECINFO => &[COMPONENT],
        op::SETATTR => &[STATEID, BITMAP, ATTRIBUTES],
        op::SETCLIENTID => &[Words(2), OWNER, Words(1), ANY, ANY, Words(1)],
        op::SETCLIENTID_CONFIRM => &[Words(4)],
        op::WRITE => &[STATEID, Words(3), Item(MAX_DATA)],
        op::RELEASE_LOCKOWNER => &[Words(2), OWNER],
        _ => return sessions(operation).or_else(|| minor_version_2(operation)),
    })
}

/// Operations new in NFS version 4.1.
fn sessions(operation: u32) -> Option<Shapes> {
    Some(match operation {
        op::BACKCHANNEL_CTL => &[Words(1), CALLBACK_SECURITY],
        op::BIND_CONN_TO_SESSION => &[Words(4), Kept, Kept],
        op::EXCHANGE_ID => &[
            Words(2),
            OWNER,
            Words(1),
            STATE_PROTECT,
            Array(1, &[ANY, ANY, Words(3)]),
        ],
        op::CREATE_SESSION => &[
            Words(3),
            Kept,
            Kept,
            Kept,
            Kept,
            Kept,
            Kept,
            Kept,
            KeptOption,
            Kept,
            Kept,
            Kept,
            Kept,
            Kept,
            Kept,
            KeptOption,
            Words(1),
            CALLBACK_SECURITY,
        ],
        op::DESTROY_SESSION => &[Words(4)],
        op::FREE_STATEID => &[STATEID],
        op::GET_DIR_DELEGATION => &[Words(1), BITMAP, Words(6), BITMAP, BITMAP],
        op::GETDEVICEINFO => &[Words(5), Adds(MAX_OPAQUE), BITMAP],
        op::GETDEVICELIST => &[Words(1), AddsEach(MAX_ELEMENTS, 16), Words(4)],
        op::LAYOUTCOMMIT => &[Words(5), STATEID, Optional(2), Optional(3), Words(1), ANY],
        op::LAYOUTGET => &[Words(9), STATEID, Adds(MAX_OPAQUE)],
        op::LAYOUTRETURN => &[
            Words(3),
            Union(&[(1, &[Words(4), STATEID, ANY])], Some(&[])),
        ],
        op::SECINFO_NO_NAME => &[Words(1)],
        op::SEQUENCE => &[Words(8)],
        op::SET_SSV => &[ANY, ANY],
        op::TEST_STATEID => &[AddsWords(MAX_ELEMENTS, 4)],
        op::WANT_DELEGATION => &[
            Words(1),
            Union(&[(1, &[Words(1)]), (4, &[]), (6, &[])], None),
        ],
        op::DESTROY_CLIENTID => &[Words(2)],
        op::RECLAIM_COMPLETE => &[Words(1)],
        _ => return None,
    })
}

/// Operations new in NFS version 4.2, and those of RFC 8276.
fn minor_version_2(operation: u32) -> Option<Shapes> {
    Some(match operation {
        op::ALLOCATE | op::DEALLOCATE => &[STATEID, Words(4)],
        op::COPY => &[STATEID, STATEID, Words(8), Array(MAX_ELEMENTS, &[NETLOC])],
        op::COPY_NOTIFY => &[STATEID, NETLOC],
        op::IO_ADVISE => &[STATEID, Words(4), BITMAP],
        op::LAYOUTERROR => &[Words(4), STATEID, Vector(MAX_ELEMENTS, 6)],
        op::LAYOUTSTATS => &[Words(4), STATEID, Words(13), ANY],
        op::OFFLOAD_CANCEL | op::OFFLOAD_STATUS => &[STATEID],
        op::READ_PLUS => &[STATEID, Words(2), Adds(MAX_DATA)],
        op::SEEK => &[STATEID, Words(3)],
        op::WRITE_SAME => &[STATEID, Words(12), ANY],
        op::CLONE => &[STATEID, STATEID, Words(6)],
        op::GETXATTR | op::REMOVEXATTR => &[COMPONENT],
        op::SETXATTR => &[Words(1), COMPONENT, ANY],
        op::LISTXATTRS => &[Words(2), Adds(MAX_DIRECTORY_REPLY)],
        _ => return None,
    })
}
