//! Programs and clients inside a region.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use spillway_harness::{LoadClient, Process};
use tokio::net::TcpSocket;

use crate::wan::{WanNetwork, enter};

/// Returns a client of `address` in the namespace of the file `namespace`. Each socket is made on a
/// thread inside the namespace, and belongs to that namespace wherever it is used later.
pub(crate) fn client(namespace: &str, address: SocketAddr) -> io::Result<LoadClient> {
    let inside = File::open(namespace)?;
    Ok(LoadClient::with_sockets(address, move || {
        let open = || -> io::Result<TcpSocket> {
            enter(&inside)?;
            TcpSocket::new_v4()
        };
        // On a thread of its own, since a thread that has entered stays inside.
        let opened = std::thread::scope(|scope| scope.spawn(open).join());
        opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }))
}

/// Starts a program in a region's first node. Its output is appended to the file `log`.
pub(crate) fn start(
    network: &WanNetwork,
    region: &str,
    command: &mut Command,
    log: &Path,
) -> anyhow::Result<Process> {
    let namespace = network.namespace(region, 1).context("a namespace")?;
    let name = log.file_stem().unwrap_or_default().to_string_lossy();
    namespace.run(|| Process::start(&name, command, log)).context("enter a region")?
}
