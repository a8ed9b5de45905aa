//! Room for connections within the limit of open files.

use spillway_sockets::{clients_max, raise_open_files};
use spillway_transport::Limits;

/// Raises the limit of open files, and lowers that of client connections to what it allows: clients
/// that are idle must not take the descriptors by which others reach replicas.
pub(crate) fn fit(limits: &mut Limits) {
    let open_files = match raise_open_files() {
        Ok(open_files) => open_files,
        Err(error) => return tracing::warn!(%error, "can't raise the limit of open files"),
    };
    let Some(open_files) = open_files else { return };
    let (allowed, wanted) = (clients_max(open_files), limits.connections_max);
    if allowed < wanted {
        tracing::warn!(
            open_files,
            allowed,
            connections_max = wanted,
            "the limit of open files allows fewer client connections than `limits.connections_max`: \
             raise it (`ulimit -n`, `LimitNOFILE`), or lower that"
        );
        limits.connections_max = allowed;
    }
}
