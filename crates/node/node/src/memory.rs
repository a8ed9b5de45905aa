//! Watches the memory of this process, for the gateway to refuse work before it is used up.
//!
//! The real memory of the process counts. Its control group counts more: files that the kernel
//! keeps for it and would give up at once.

use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use spillway_front::front_door::FrontDoor;
use spillway_transport::Pressure;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::memory_limit::MemoryLimit;

/// Period of looking while there is room, and of renewing the trickle.
const LOOK: Duration = Duration::from_millis(100);
/// Number of looks in each such period near the ceiling: within 20 ms a node takes in 25 MB at 10
/// Gbit/s.
const CLOSE_LOOKS: u32 = 5;

/// Watches until the stop. Without `/proc` it logs one warning and ends.
pub(crate) async fn watch(door: Arc<FrontDoor>, stop: CancellationToken) {
    let configured = Some(door.limits().memory_bytes_max).filter(|bytes| *bytes > 0);
    let Some(ceiling) = configured.or_else(allowed_bytes) else {
        return tracing::warn!("the size of the memory can't be read; set limits.memory_bytes_max");
    };
    let memory = door.memory();
    let mut before = Pressure::Free;
    let mut reclaiming: Option<JoinHandle<()>> = None;
    // Number of looks in this period.
    let mut looks = 0;
    loop {
        let Some(used) = used_bytes() else {
            return tracing::warn!("the memory in use can't be read, so nothing is refused for it");
        };
        let is_main = looks == 0;
        let now = if is_main { memory.note(used, ceiling) } else { memory.look(used, ceiling) };
        if is_main && memory.is_near_ceiling() {
            // One reclaim at a time, however long it takes.
            reclaiming = reclaiming.filter(|last| !last.is_finished()).or_else(reclaim_memory);
        }
        if now != before {
            tell(before, now, used, ceiling);
            before = now;
        }
        // Far from the ceiling one look is enough.
        let (pause, most) = match memory.is_near_ceiling() {
            true => (LOOK / CLOSE_LOOKS, CLOSE_LOOKS),
            false => (LOOK, 1),
        };
        looks = if looks + 1 < most { looks + 1 } else { 0 };
        if stop.run_until_cancelled(sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Makes the allocator return free pages to the system, on a thread of its own; `None` if the
/// thread can't be started.
///
/// mimalloc returns memory that was free for a second when a thread has called it some thousand
/// times, or ends. A node that refuses all work does neither, so its freed memory would count as
/// used for minutes. A thread that ends at once makes mimalloc look through the memory of all
/// threads, and off the workers. The allocator's own call for this would take unsafe code. With
/// another allocator this function has no effect.
#[must_use]
pub fn reclaim_memory() -> Option<JoinHandle<()>> {
    // Only a thread that has allocated something is known to the allocator.
    let touch = || drop(black_box(Box::new(0_u64)));
    thread::Builder::new().name("reclaim".to_owned()).spawn(touch).ok()
}

fn tell(before: Pressure, now: Pressure, used: u64, ceiling: u64) {
    if now > before {
        tracing::warn!(?now, used, ceiling, "memory is short: new work is refused");
    } else {
        tracing::info!(?now, used, ceiling, "enough memory is free again");
    }
}

/// Returns the real memory of this process in bytes. A read of `/proc` never waits for a disk.
///
/// Each call allocates the text again, which makes mimalloc give back memory that an idle node has
/// freed. With a buffer that was kept, 10,000 idle connections held 234 MiB instead of 74.
fn used_bytes() -> Option<u64> {
    resident(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Returns the memory that the machine and the control groups allow, in bytes, and logs what says so.
fn allowed_bytes() -> Option<u64> {
    let MemoryLimit { bytes, file } = MemoryLimit::find(|path| fs::read_to_string(path).ok())?;
    tracing::info!(bytes, by = %file.display(), "memory limit of this process");
    Some(bytes)
}

/// Returns the size in the line of `text` that begins with `name`, converted from KiB to bytes.
fn resident(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_and_what_there_is_are_read() {
        let status = "Name:\tspillway\nVmPeak:\t  99 kB\nVmRSS:\t   12 kB\nThreads:\t3\n";
        assert_eq!(resident(status, "VmRSS:"), Some(12 << 10));
        assert_eq!(resident(status, "VmSwap:"), None);
        assert_eq!(resident("VmRSS: much\n", "VmRSS:"), None);
        let used = used_bytes().unwrap();
        let allowed = allowed_bytes().unwrap();
        assert!(used > 1 << 20 && used < allowed, "{used} of {allowed}");
    }
}
