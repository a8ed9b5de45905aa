//! Network namespaces that only open files and processes keep alive.
//!
//! A namespace here has no name under `/run/netns`. The kernel closes this process's files however
//! it ends, and the namespace and its device are gone as soon as no process is inside.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use tun_rs::{DeviceBuilder, SyncDevice};

use super::netlink::{LOOPBACK, Netlink};
use super::topology::NamespaceConfig;

/// Name of the device in every namespace.
const DEVICE: &str = "wan0";

/// Most packets that wait in a device while the forwarding thread is busy: 10 ms at a million a
/// second.
const DEVICE_QUEUE: u32 = 10_000;

/// Kernel's identity of an open namespace: device and inode of its file.
pub(crate) type NamespaceId = (u64, u64);

/// Network namespace with a loopback device.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    id: NamespaceId,
}

impl Namespace {
    /// Makes a namespace with the device and the addresses of `config`.
    pub(crate) fn create(
        config: &NamespaceConfig,
        mtu_bytes: u16,
    ) -> io::Result<(Self, SyncDevice)> {
        // On a thread of its own, because the thread leaves the namespace of all others
        // permanently.
        let work = || -> io::Result<(Self, SyncDevice)> {
            #[expect(
                deprecated,
                reason = "its successor is unsafe because of file tables; this asks for a network"
            )]
            rustix::thread::unshare(UnshareFlags::NEWNET)?;
            let file = File::open("/proc/thread-self/ns/net")?;
            let device = DeviceBuilder::new().name(DEVICE).build_sync()?;
            device.set_nonblocking(true)?;
            configure(config, mtu_bytes)?;
            let namespace = Self { id: identity(&file)?, file };
            Ok((namespace, device))
        };
        on_thread(work)
    }

    /// Runs `work` inside the namespace, on a thread of its own. Sockets and processes that `work`
    /// opens or starts stay inside.
    ///
    /// # Errors
    ///
    /// Returns an error if the namespace cannot be entered.
    ///
    /// # Panics
    ///
    /// Panics if `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_thread(|| {
            enter(&self.file)?;
            Ok(work())
        })
    }

    pub(crate) fn id(&self) -> NamespaceId {
        self.id
    }

    /// Returns a path at which another process of the same user can open the namespace.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// Moves the calling thread into the namespace of `file`, with all that it starts or executes
/// later.
///
/// # Errors
///
/// Returns an error if the file is no network namespace, or without the rights.
pub fn enter(file: &File) -> io::Result<()> {
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Returns the kernel's identity of the namespace of `file`.
pub(crate) fn identity(file: &File) -> io::Result<NamespaceId> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Replaces this process by `program` inside the namespace of the file `namespace`. Returns only on
/// error.
///
/// The kernel kills the program when the parent of this process ends.
pub fn become_inside(namespace: &str, mut program: Command) -> io::Error {
    let entered = || -> io::Result<()> {
        let parent = getppid();
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the signal was set.
        if getppid() != parent {
            return Err(io::Error::other("the parent has ended"));
        }
        enter(&File::open(namespace)?)
    };
    match entered() {
        Ok(()) => program.exec(),
        Err(error) => error,
    }
}

fn configure(config: &NamespaceConfig, mtu_bytes: u16) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    netlink.bring_up(LOOPBACK)?;
    let device = netlink.index(DEVICE)?;
    netlink.size(device, u32::from(mtu_bytes), DEVICE_QUEUE)?;
    netlink.bring_up(device)?;
    for (_, address) in &config.nodes {
        netlink.add_address(device, *address, config.prefix_length)?;
    }
    match config.nodes.first() {
        Some((_, address)) => netlink.add_default_route(device, *address),
        None => Ok(()),
    }
}

fn on_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let joined = thread::scope(|scope| scope.spawn(work).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
