//! Test of the allocator that `main` sets.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Returns the resident memory of this process in MiB.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn memory_that_is_free_is_returned_though_nobody_allocates() {
    let before = resident_mib();
    let (freed, was_freed) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let worker = thread::spawn(move || {
        let held: Vec<_> = (0..256).map(|_| vec![1_u8; 1 << 20]).collect();
        drop(std::hint::black_box(held));
        freed.send(()).unwrap();
        // A thread that ends would give its memory back by itself.
        let _: Result<(), _> = ended.recv();
    });
    was_freed.recv().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        spillway_node::reclaim_memory().unwrap().join().unwrap();
        let grown = resident_mib().saturating_sub(before);
        if grown < 64 {
            break;
        }
        assert!(Instant::now() < deadline, "{grown} MiB are kept");
        // wait: until the memory was free for as long as the allocator keeps it
        thread::sleep(Duration::from_millis(100));
    }
    drop(end);
    worker.join().unwrap();
}
