//! A disk in memory that knows which writes were forced, and that fails on demand.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;

use crate::disk::commit_marker::{CommitMarker, CommitNote, newest, place_of};
use crate::disk::fault::DiskError;

/// Unit that a disk writes completely or not at all.
const SECTOR_BYTES: usize = 512;

/// The power of a machine: all disks and folders that share it stop at the same step.
#[derive(Clone, Debug, Default)]
pub(super) struct Power(Arc<Mutex<Supply>>);

#[derive(Debug, Default)]
struct Supply {
    /// Number of further steps until the power fails; `None` for never.
    left: Option<usize>,
    steps: usize,
}

impl Power {
    /// Fails after so many more steps.
    pub(super) fn fail_after(&self, steps: usize) {
        self.0.lock().unwrap().left = Some(steps);
    }

    /// Steps that were taken so far.
    pub(super) fn steps(&self) -> usize {
        self.0.lock().unwrap().steps
    }

    /// Takes one step, unless the power has failed.
    pub(super) fn step(&self) -> io::Result<()> {
        let mut supply = self.0.lock().unwrap();
        match &mut supply.left {
            Some(0) => return Err(io::Error::other("crashed")),
            Some(left) => *left -= 1,
            None => {}
        }
        supply.steps += 1;
        Ok(())
    }
}

/// ENOSPC of Linux.
const NO_SPACE: i32 = 28;

/// Outcome of a write or a force.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Fault {
    /// Nothing.
    #[default]
    None,
    /// After so many more writes and forces, everything fails, as if the process were gone.
    Crash(usize),
    /// No write finds room any more.
    Full,
    /// Forcing fails, once; later it seems to work, as on real systems.
    ForceOnce,
}

#[derive(Debug, Default)]
struct State {
    /// Contents that survive a power failure.
    forced: Vec<u8>,
    /// Contents that the process sees.
    seen: Vec<u8>,
    pending: Vec<Write>,
    fault: Fault,
    power: Power,
    forces: usize,
}

#[derive(Clone, Debug)]
enum Write {
    Length(usize),
    Bytes(usize, Vec<u8>),
}

/// Handles share the disk.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultyDisk(Arc<Mutex<State>>);

impl FaultyDisk {
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        let state = State { forced: bytes.clone(), seen: bytes, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Returns this disk on a machine with this power.
    pub(super) fn powered(self, power: &Power) -> Self {
        self.lock().power = power.clone();
        self
    }

    pub(super) fn set(&self, fault: Fault) {
        self.lock().fault = fault;
    }

    pub(super) fn forces(&self) -> usize {
        self.lock().forces
    }

    /// Writes behind what is there, as a file that is made does.
    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        let end = state.seen.len();
        state.write(Write::Bytes(end, bytes.to_vec()))
    }

    /// Makes all that was written last.
    pub(super) fn force(&self) -> io::Result<()> {
        self.lock().force()
    }

    /// All bytes, as if the process had ended properly.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.lock().seen.clone()
    }

    /// Returns the forced contents, and nothing else.
    pub(super) fn forced(&self) -> Vec<u8> {
        self.lock().forced.clone()
    }

    /// Returns the contents that may be found after a power failure: all that was forced, and some
    /// of the later writes, in any order, some of them torn between sectors.
    pub(super) fn after_crash(&self, random: &mut fastrand::Rng) -> Vec<u8> {
        let state = self.lock();
        let mut bytes = state.forced.clone();
        let mut pending = state.pending.clone();
        if random.bool() {
            random.shuffle(&mut pending);
        }
        let kept_percent = [0, 50, 90, 100][random.usize(0..4)];
        for write in pending {
            if random.u8(0..100) < kept_percent {
                apply(&mut bytes, &write);
            } else if let Write::Bytes(offset, data) = write {
                let sectors = data.len().div_ceil(SECTOR_BYTES);
                let torn = (random.usize(0..=sectors) * SECTOR_BYTES).min(data.len());
                // A place in the file, not in the write, is what a sector is.
                let torn = torn.saturating_sub(offset % SECTOR_BYTES);
                apply(&mut bytes, &Write::Bytes(offset, data[..torn].to_vec()));
            }
        }
        bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

fn apply(bytes: &mut Vec<u8>, write: &Write) {
    match write {
        Write::Length(length) => bytes.resize(*length, 0),
        Write::Bytes(offset, data) => {
            let end = offset + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[*offset..end].copy_from_slice(data);
        }
    }
}

impl State {
    /// Counts one write or force.
    fn step(&mut self) -> io::Result<()> {
        self.power.step()?;
        match &mut self.fault {
            Fault::Crash(0) => Err(io::Error::other("crashed")),
            Fault::Crash(left) => {
                *left -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, write: Write) -> io::Result<()> {
        self.step()?;
        if self.fault == Fault::Full {
            return Err(io::Error::from_raw_os_error(NO_SPACE));
        }
        apply(&mut self.seen, &write);
        self.pending.push(write);
        Ok(())
    }

    fn force(&mut self) -> io::Result<()> {
        self.step()?;
        if self.fault == Fault::ForceOnce {
            // Writes that could not be forced are lost, and the next force succeeds.
            self.fault = Fault::None;
            self.pending.clear();
            return Err(io::Error::other("an I/O error"));
        }
        self.forces += 1;
        let pending = std::mem::take(&mut self.pending);
        pending.iter().for_each(|write| apply(&mut self.forced, write));
        Ok(())
    }
}

impl StorageBackend for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.lock();
        let offset = usize::try_from(offset).unwrap();
        let read = state.seen.get(offset..offset + out.len());
        out.copy_from_slice(read.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.lock().write(Write::Length(usize::try_from(len).unwrap()))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.lock().force()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.lock().write(Write::Bytes(usize::try_from(offset).unwrap(), data.to_vec()))
    }
}

/// A commit marker on such a disk.
impl CommitMarker for FaultyDisk {
    fn read(&self) -> Result<Option<CommitNote>, DiskError> {
        Ok(newest(&self.lock().seen))
    }

    fn write(&self, note: CommitNote, force: bool) -> Result<(), DiskError> {
        let (offset, place) = place_of(note)?;
        let mut state = self.lock();
        let offset = usize::try_from(offset).unwrap();
        let fault = DiskError::io("the commit marker");
        state.write(Write::Bytes(offset, place.to_vec())).map_err(fault)?;
        if force { state.force().map_err(DiskError::io("the commit marker")) } else { Ok(()) }
    }
}
