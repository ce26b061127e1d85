//! Results of the operations of NFS version 4.

use super::super::shape::Shape::{
    Array, Item, Kept, KeptOption, List, Opaque, Optional, Text, Union, Vector, Words,
};
use super::super::shape::{ANY, ATTRIBUTES, BITMAP, COMPONENT, STATEID, Shape, Shapes};
use super::operation as op;
use crate::limits::{
    MAX_DATA, MAX_ELEMENTS, MAX_FLAVORS, MAX_OPAQUE, MAX_PATH, MAX_STATE_OWNER, MAX_V4_HANDLE,
};

const OWNER: Shape = Opaque(MAX_STATE_OWNER);
/// `change_info4` (RFC 7530 §2.2.11).
const CHANGE_INFO: Shape = Words(5);
/// `nfsace4` (RFC 7530 §6.2.1) is three words and its `who`.
const ACE: Shape = Words(3);

/// `open_read_delegation4`, and `open_write_delegation4` with its limit of space (RFC 8881 §18.16.2).
const READ_DELEGATION: Shapes = &[STATEID, Words(1), ACE, ANY];
const WRITE_DELEGATION: Shapes = &[
    STATEID,
    Words(1),
    Union(&[(1, &[Words(2)]), (2, &[Words(2)])], None),
    ACE,
    ANY,
];

/// `open_delegation4` (RFC 8881 §18.16.2), with the delegations of time attributes of RFC 9754.
const DELEGATION: Shape = Union(
    &[
        (0, &[]),
        (1, READ_DELEGATION),
        (2, WRITE_DELEGATION),
        (
            3,
            &[Union(&[(1, &[Words(1)]), (2, &[Words(1)])], Some(&[]))],
        ),
        (4, READ_DELEGATION),
        (5, WRITE_DELEGATION),
    ],
    None,
);

/// `SECINFO4resok` (RFC 7530 §16.31.3).
const SECURITY: Shape = Array(MAX_FLAVORS, &[Union(&[(6, &[ANY, Words(2)])], Some(&[]))]);

/// `LOCK4denied` (RFC 7530 §16.10.3), with the status before it.
const DENIED: (u32, Shapes) = (10_010, &[Words(7), OWNER]);

/// `write_response4` (RFC 7862 §15.2.2): the callback's stateid, and the rest.
const WRITE_RESPONSE: [Shape; 2] = [Vector(1, 4), Words(5)];

/// A status, with these results if it is NFS4_OK.
macro_rules! ok {
    ($($result:expr),*) => {
        &[Union(&[(0, &[$($result),*])], Some(&[]))]
    };
}

/// Returns the result of an operation, status included. `None` if it is not known.
pub(super) fn results(operation: u32) -> Option<Shapes> {
    Some(match operation {
        op::ACCESS => ok![Words(2)],
        op::CLOSE => ok![STATEID],
        op::COMMIT => ok![Words(2)],
        op::CREATE => ok![CHANGE_INFO, BITMAP],
        op::GETATTR => ok![BITMAP, ATTRIBUTES],
        op::GETFH => ok![Opaque(MAX_V4_HANDLE)],
        op::LINK | op::REMOVE => ok![CHANGE_INFO],
        op::LOCK => &[Union(&[(0, &[STATEID]), DENIED], Some(&[]))],
        op::LOCKT => &[Union(&[DENIED], Some(&[]))],
        op::LOCKU => ok![STATEID],
        op::OPEN => ok![STATEID, CHANGE_INFO, Words(1), BITMAP, DELEGATION],
        op::OPEN_CONFIRM | op::OPEN_DOWNGRADE => ok![STATEID],
        op::READ => ok![Words(1), Item(MAX_DATA)],
        op::READDIR => ok![
            Words(2),
            List(&[Words(2), COMPONENT, BITMAP, ATTRIBUTES]),
            Words(1)
        ],
        op::READLINK => ok![Text(MAX_PATH)],
        op::RENAME => ok![CHANGE_INFO, CHANGE_INFO],
        op::SECINFO | op::SECINFO_NO_NAME => ok![SECURITY],
        // The bitmap follows any status (RFC 7530 §16.32.3).
        op::SETATTR => &[Words(1), BITMAP],
        op::SETCLIENTID => &[Union(&[(0, &[Words(4)]), (10_017, &[ANY, ANY])], Some(&[]))],
        op::WRITE => ok![Words(4)],
        op::DELEGPURGE
        | op::DELEGRETURN
        | op::LOOKUP
        | op::LOOKUPP
        | op::NVERIFY
        | op::OPENATTR
        | op::PUTFH
        | op::PUTPUBFH
        | op::PUTROOTFH
        | op::RELEASE_LOCKOWNER
        | op::RENEW
        | op::RESTOREFH
        | op::SAVEFH
        | op::SETCLIENTID_CONFIRM
        | op::VERIFY => &[Words(1)],
        _ => return sessions(operation).or_else(|| minor_version_2(operation)),
    })
}

/// Operations new in NFS version 4.1.
fn sessions(operation: u32) -> Option<Shapes> {
    Some(match operation {
        op::BIND_CONN_TO_SESSION => ok![Words(4), Kept, Kept],
        op::EXCHANGE_ID => ok![
            Words(3),
            Kept,
            Union(
                &[
                    (0, &[]),
                    (1, &[BITMAP, BITMAP]),
                    (2, &[BITMAP, BITMAP, Words(4), Array(MAX_ELEMENTS, &[ANY])])
                ],
                None
            ),
            Words(2),
            OWNER,
            OWNER,
            Array(1, &[ANY, ANY, Words(3)])
        ],
        op::CREATE_SESSION => ok![
            Words(5),
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
            KeptOption
        ],
        op::GET_DIR_DELEGATION => ok![Union(
            &[
                (0, &[Words(2), STATEID, BITMAP, BITMAP, BITMAP]),
                (1, &[Words(1)])
            ],
            None
        )],
        op::GETDEVICEINFO => &[Union(
            &[(0, &[Words(1), ANY, BITMAP]), (10_005, &[Words(1)])],
            Some(&[]),
        )],
        op::GETDEVICELIST => ok![Words(4), Vector(MAX_ELEMENTS, 4), Words(1)],
        op::LAYOUTCOMMIT => ok![Optional(2)],
        op::LAYOUTGET => &[Union(
            &[
                (
                    0,
                    &[Words(1), STATEID, Array(MAX_ELEMENTS, &[Words(6), ANY])],
                ),
                (10_058, &[Words(1)]),
            ],
            Some(&[]),
        )],
        op::LAYOUTRETURN => ok![Optional(4)],
        op::SEQUENCE => ok![Words(9)],
        op::SET_SSV => ok![ANY],
        op::TEST_STATEID => ok![Vector(MAX_ELEMENTS, 1)],
        op::WANT_DELEGATION => ok![DELEGATION],
        op::BACKCHANNEL_CTL
        | op::DESTROY_SESSION
        | op::FREE_STATEID
        | op::DESTROY_CLIENTID
        | op::RECLAIM_COMPLETE => &[Words(1)],
        _ => return None,
    })
}

/// Operations new in NFS version 4.2, and those of RFC 8276.
fn minor_version_2(operation: u32) -> Option<Shapes> {
    Some(match operation {
        op::COPY => &[Union(
            &[
                (0, &[WRITE_RESPONSE[0], WRITE_RESPONSE[1], Words(2)]),
                (10_094, &[Words(2)]),
            ],
            Some(&[]),
        )],
        op::COPY_NOTIFY => ok![
            Words(3),
            STATEID,
            Array(
                MAX_ELEMENTS,
                &[Union(&[(1, &[ANY]), (2, &[ANY]), (3, &[ANY, ANY])], None)]
            )
        ],
        op::IO_ADVISE => ok![BITMAP],
        op::OFFLOAD_STATUS => ok![Words(2), Vector(1, 1)],
        // Data of READ_PLUS is not eligible (RFC 8267 §6.1).
        op::READ_PLUS => ok![
            Words(1),
            Array(
                MAX_ELEMENTS,
                &[Union(
                    &[(0, &[Words(2), Opaque(MAX_OPAQUE)]), (1, &[Words(4)])],
                    Some(&[])
                )]
            )
        ],
        op::SEEK => ok![Words(3)],
        op::WRITE_SAME => ok![WRITE_RESPONSE[0], WRITE_RESPONSE[1]],
        op::GETXATTR => ok![ANY],
        op::SETXATTR | op::REMOVEXATTR => ok![CHANGE_INFO],
        op::LISTXATTRS => ok![Words(2), Array(MAX_ELEMENTS, &[COMPONENT]), Words(1)],
        op::ALLOCATE
        | op::DEALLOCATE
        | op::LAYOUTERROR
        | op::LAYOUTSTATS
        | op::OFFLOAD_CANCEL
        | op::CLONE => &[Words(1)],
        _ => return None,
    })
}
