//! Forwarding thread: reads devices and commands, and writes packets that are due.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;
use tun_rs::SyncDevice;

use super::control::{ControlAnswer, ControlCommand, ControlError};
use super::hub::Hub;

/// Most packets to read from one device before other devices and due packets get their turn.
const BATCH: usize = 64;

/// Longest delay of a wake-up by the kernel; the default is 50 microseconds.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN;

/// Priority above that of ordinary processes, which are the measured ones. Needs no real-time
/// class.
const NICE: i32 = -20;

/// Command with the channel for its answer.
#[derive(Debug)]
pub(crate) struct ForwardAsk {
    pub(crate) command: ControlCommand,
    pub(crate) answer: oneshot::Sender<Result<ControlAnswer, ControlError>>,
}

pub(crate) struct Forwarder {
    pub(crate) hub: Hub,
    pub(crate) devices: Vec<SyncDevice>,
    pub(crate) asks: Receiver<ForwardAsk>,
    /// Event that is readable while `asks` has something.
    pub(crate) wake: std::sync::Arc<OwnedFd>,
}

/// Next action of the loop.
#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    Stop,
}

impl Forwarder {
    /// Forwards packets until a stop command, or until all handles are dropped.
    pub(crate) fn run(mut self) -> io::Result<()> {
        // Both only reduce lateness, so a lack of rights does not matter.
        let _: Result<(), _> = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
        let _: Result<(), _> = rustix::process::setpriority_process(None, NICE);
        let start = Instant::now();
        let now_ns = || start.elapsed().as_nanos() as u64;
        let mut buffer = vec![0; usize::from(u16::MAX)];
        loop {
            self.deliver(now_ns());
            let ready = self.wait(now_ns())?;
            if ready.last() == Some(&true) && self.answer()? == Next::Stop {
                return Ok(());
            }
            for namespace in (0..self.devices.len()).filter(|namespace| ready[*namespace]) {
                self.collect(namespace, &mut buffer, now_ns)?;
            }
        }
    }

    fn deliver(&mut self, now_ns: u64) {
        while let Some(parcel) = self.hub.take(now_ns) {
            // A device refuses only bytes that are no packet, for example after a flipped bit.
            drop(self.devices[parcel.namespace].send(&parcel.bytes));
            self.hub.recycle(parcel.bytes);
        }
    }

    /// Waits for a packet, a command or the next due packet. Returns true for each device that is
    /// ready, and last for the commands.
    fn wait(&self, now_ns: u64) -> io::Result<Vec<bool>> {
        let timeout = self
            .hub
            .next_due_ns()
            .map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(now_ns)))
            .and_then(|left| Timespec::try_from(left).ok());
        let devices = self.devices.iter().map(|device| PollFd::new(device, PollFlags::IN));
        let mut files: Vec<PollFd<'_>> =
            devices.chain([PollFd::new(&*self.wake, PollFlags::IN)]).collect();
        match poll(&mut files, timeout.as_ref()) {
            Ok(_) => Ok(files.iter().map(|file| !file.revents().is_empty()).collect()),
            // A signal is no error: the loop delivers due packets and waits again.
            Err(rustix::io::Errno::INTR) => Ok(vec![false; files.len()]),
            Err(error) => Err(error.into()),
        }
    }

    fn collect(
        &mut self,
        namespace: usize,
        buffer: &mut [u8],
        now_ns: impl Fn() -> u64,
    ) -> io::Result<()> {
        for _ in 0..BATCH {
            match self.devices[namespace].recv(buffer) {
                Ok(length) => self.hub.offer(now_ns(), namespace, &buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn answer(&mut self) -> io::Result<Next> {
        rustix::io::read(&*self.wake, &mut [0; 8])?;
        loop {
            let ask = match self.asks.try_recv() {
                Ok(ask) => ask,
                Err(TryRecvError::Empty) => return Ok(Next::Continue),
                Err(TryRecvError::Disconnected) => return Ok(Next::Stop),
            };
            let mut answer = self.hub.apply(&ask.command);
            if let Ok(ControlAnswer::Stats(stats)) = &mut answer {
                // Only this thread can read its own processor time.
                stats.cpu_us = cpu_us();
            }
            // The sender of the command may be gone.
            drop(ask.answer.send(answer));
            if ask.command == (ControlCommand::Stop {}) {
                return Ok(Next::Stop);
            }
        }
    }
}

fn cpu_us() -> u64 {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    spent.tv_sec as u64 * 1_000_000 + spent.tv_nsec as u64 / 1_000
}
