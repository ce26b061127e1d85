//! The libraries of rdma-core, loaded at run time.

#![expect(
    unsafe_code,
    reason = "functions of a library have the types that their headers give them"
)]

use crate::error::OpenError;
use crate::sys::cm::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use crate::sys::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr,
    ibv_gid_entry, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr,
};
use libc::{c_char, c_int, c_uint, c_void, sockaddr};
use rustix::fs::{major, minor};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Declares the functions of one library, and how they are found in it.
///
/// A symbol with several versions is found in its default version, as a program gets it that is linked today.
macro_rules! library {
    (
        $(#[$doc:meta])* $library:ident = $file:literal;
        $(fn $name:ident($($parameter:ty),*) $(-> $result:ty)?;)+
    ) => {
        $(#[$doc])*
        pub(crate) struct $library {
            $(pub(crate) $name: unsafe extern "C" fn($($parameter),*) $(-> $result)?,)+
        }

        impl $library {
            fn load() -> Result<Self, OpenError> {
                // SAFETY: Loading runs the initialisers of the library, which is rdma-core's: a name without a
                // directory is looked for where the system keeps its libraries.
                let library = unsafe { libloading::Library::new($file) };
                let library = library.map_err(|error| OpenError::no_library($file, &error))?;
                let functions = Self {
                    $($name: {
                        // SAFETY: The types are those of the library's headers, whose interface has not changed since
                        // its version 1.1.
                        let symbol = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                        *symbol.map_err(|_| OpenError::TooOld { library: $file, function: stringify!($name) })?
                    },)+
                };
                // Never unloaded: drivers leave threads and handlers behind, and the functions are used for ever.
                std::mem::forget(library);
                Ok(functions)
            }
        }
    };
}

library! {
    /// Functions of libibverbs.
    Ibverbs = "libibverbs.so.1";
    fn ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(*mut *mut ibv_device);
    fn ibv_get_device_name(*mut ibv_device) -> *const c_char;
    fn ibv_open_device(*mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(*mut ibv_context) -> c_int;
    fn ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
    fn ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
    fn _ibv_query_gid_table(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
    fn ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(*mut ibv_pd) -> c_int;
    fn ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    fn ibv_dereg_mr(*mut ibv_mr) -> c_int;
    fn ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    fn ibv_destroy_cq(*mut ibv_cq) -> c_int;
    fn ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    fn ibv_ack_cq_events(*mut ibv_cq, c_uint);
    fn ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    fn ibv_query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    fn ibv_wc_status_str(c_int) -> *const c_char;
    fn ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
    fn ibv_ack_async_event(*mut ibv_async_event);
}

library! {
    /// Functions of librdmacm.
    Rdmacm = "librdmacm.so.1";
    fn rdma_create_event_channel() -> *mut rdma_event_channel;
    fn rdma_destroy_event_channel(*mut rdma_event_channel);
    fn rdma_create_id(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
    fn rdma_destroy_id(*mut rdma_cm_id) -> c_int;
    fn rdma_bind_addr(*mut rdma_cm_id, *mut sockaddr) -> c_int;
    fn rdma_resolve_addr(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
    fn rdma_resolve_route(*mut rdma_cm_id, c_int) -> c_int;
    fn rdma_create_qp(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
    fn rdma_destroy_qp(*mut rdma_cm_id);
    fn rdma_connect(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    fn rdma_listen(*mut rdma_cm_id, c_int) -> c_int;
    fn rdma_accept(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
    fn rdma_reject(*mut rdma_cm_id, *const c_void, u8) -> c_int;
    fn rdma_disconnect(*mut rdma_cm_id) -> c_int;
    fn rdma_migrate_id(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
    fn rdma_get_cm_event(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
    fn rdma_ack_cm_event(*mut rdma_cm_event) -> c_int;
}

/// Both libraries.
pub(crate) struct Libraries {
    pub(crate) verbs: Ibverbs,
    pub(crate) cm: Rdmacm,
    /// Path at which the kernel shows an open device as long as it is there, by its descriptor and the number of its file.
    pub(crate) device_entry: fn(c_int, u64) -> PathBuf,
}

fn device_entry(_: c_int, number: u64) -> PathBuf {
    format!("/sys/dev/char/{}:{}", major(number), minor(number)).into()
}

impl Libraries {
    /// The libraries, loaded when they are first asked for. A failure is not tried again.
    pub(crate) fn get() -> Result<&'static Self, OpenError> {
        static LIBRARIES: OnceLock<Result<Libraries, OpenError>> = OnceLock::new();
        let loaded = LIBRARIES.get_or_init(|| {
            if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
                return Err(OpenError::Platform);
            }
            Ok(Self {
                verbs: Ibverbs::load()?,
                cm: Rdmacm::load()?,
                device_entry,
            })
        });
        loaded.as_ref().map_err(Clone::clone)
    }
}
