//! A disk that fails stops the log with the reason, and nothing more is acknowledged.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use spillway_types::{DiskId, NodeId};

use super::faulty::{Fault, FaultyDisk};
use crate::DiskError;
use crate::disk::log_file::{LogChange, LogFile, LogState};
use crate::disk::writer::{Job, Writer};
use crate::wire::{Ballot, Point};

fn start(log: &FaultyDisk) -> (Writer, Receiver<()>) {
    LogFile::create(log.clone(), LogState::new(NodeId(1), DiskId(77))).unwrap();
    let (file, _) = LogFile::open(log.clone(), Box::new(FaultyDisk::default())).unwrap();
    let (ended, end) = channel();
    (Writer::start(file, move || ended.send(()).unwrap_or_default()).unwrap(), end)
}

fn vote(term: u64) -> LogChange {
    LogChange::Ballot(Ballot { term, node: NodeId(1), is_won: false })
}

/// Hands a job over and waits for its end.
fn write(writer: &Writer, changes: Vec<LogChange>) -> Result<(), DiskError> {
    let (done, is_done) = channel();
    let job = Job { changes, done: Some(Box::new(move |written| done.send(written).unwrap())) };
    writer.send(job).unwrap();
    is_done.recv_timeout(Duration::from_secs(10)).unwrap()
}

#[test]
fn after_a_failure_nothing_is_acknowledged_though_the_disk_seems_well_again() {
    for fault in [Fault::Full, Fault::ForceOnce] {
        let log = FaultyDisk::default();
        let (writer, _end) = start(&log);
        write(&writer, vec![vote(1)]).unwrap();
        log.set(fault);
        let refused = write(&writer, vec![vote(2)]).unwrap_err();
        let DiskError::Stopped(first) = &refused else { panic!("{refused}") };
        assert!(matches!(**first, DiskError::Io { .. }), "{first}");
        assert!(first.to_string().contains("continues by itself"), "{first}");
        log.set(Fault::None);
        for term in 3..6 {
            assert_eq!(write(&writer, vec![vote(term)]), Err(refused.clone()), "{fault:?}");
        }
    }
}

#[test]
fn writes_that_wait_are_forced_together() {
    let log = FaultyDisk::default();
    let (writer, end) = start(&log);
    let (done, is_done) = channel();
    let before = log.forces();
    for term in 1..=300 {
        let done = done.clone();
        let told = Box::new(move |written: Result<(), _>| done.send(written.is_ok()).unwrap());
        writer.send(Job { changes: vec![vote(term)], done: Some(told) }).unwrap();
    }
    for _ in 0..300 {
        assert!(is_done.recv_timeout(Duration::from_secs(10)).unwrap());
    }
    let forces = log.forces() - before;
    assert!(forces < 150, "{forces}");
    drop(writer);
    end.recv_timeout(Duration::from_secs(10)).unwrap();
}

#[test]
fn what_nobody_waits_for_goes_with_the_next_write_or_when_it_is_quiet_or_at_the_end() {
    let log = FaultyDisk::default();
    let (writer, end) = start(&log);
    write(&writer, vec![vote(1)]).unwrap();
    let before = log.forces();
    let lazy = |index| Job {
        changes: vec![LogChange::Committed(Some(Point { term: 0, index }))],
        done: None,
    };
    writer.send(lazy(0)).unwrap();
    let by = std::time::Instant::now() + Duration::from_secs(10);
    while log.forces() == before {
        assert!(std::time::Instant::now() < by, "never written");
        // wait: for the writer's idle time.
        std::thread::sleep(Duration::from_millis(10));
    }
    writer.send(lazy(1)).unwrap();
    drop(writer);
    end.recv_timeout(Duration::from_secs(10)).unwrap();
    // Committed without its entry is what the check is for; here it only shows what was written.
    let fault = LogFile::open(log, Box::new(FaultyDisk::default())).unwrap_err();
    assert!(fault.to_string().contains("end of the log is missing"), "{fault}");
}
