//! Text of `--version`.

use nfs_proto::{MOUNT_V3, NFS_V3, NFSACL_V3};
use std::sync::LazyLock;

/// Version and commit, in one line.
pub(crate) fn short() -> &'static str {
    static SHORT: LazyLock<String> =
        LazyLock::new(|| with_commit(env!("CARGO_PKG_VERSION"), env!("RPCRDMA_COMMIT")));
    &SHORT
}

/// Day of the commit, as in 2026-11-23, if it is known.
pub(crate) fn date() -> &'static str {
    env!("RPCRDMA_COMMIT_DATE")
}

/// Version and commit, and what this program speaks.
pub(crate) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let build = match cfg!(debug_assertions) {
            true => "with debug assertions",
            false => "release",
        };
        format!(
            "{}\n\
             protocols: NFS version {NFS_V3}, MOUNT version {MOUNT_V3}, NFSACL version {NFSACL_V3}; \
             RPC-over-RDMA versions 1 and 2\n\
             providers: iwarp (software iWARP over TCP), verbs (RDMA devices, by rdma-core's libraries)\n\
             build:     {}, {build}",
            short(),
            env!("RPCRDMA_TARGET"),
        )
    });
    &LONG
}

fn with_commit(version: &str, commit: &str) -> String {
    match commit.is_empty() {
        true => version.to_owned(),
        false => format!("{version} ({commit})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_stands_alone_where_there_is_no_commit() {
        assert_eq!(with_commit("1.2.3", ""), "1.2.3");
        assert_eq!(with_commit("1.2.3", "0123456789ab"), "1.2.3 (0123456789ab)");
    }
}
