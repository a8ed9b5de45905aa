//! Writer of lines to a file or a standard stream, on a thread of its own: a task that writes a
//! line never waits for a disk or a reader.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Most lines that wait for the disk: a second of 8,000 requests.
const LINES_MAX: usize = 8_192;
/// Bytes that are written at once, so that a busy node asks the system once in a hundred lines.
const BUFFER_BYTES: usize = 64 << 10;
/// Longest time for which a file that was moved away, as programs that rotate logs do, is written on.
const REOPEN: Duration = Duration::from_secs(1);
/// Time between two looks for room in the queue, at the end.
const LOOK: Duration = Duration::from_millis(5);
/// Longest wait for a pipe whose reader does not read. Lines are lost after that, and the pipe may be
/// another file by then.
const STUCK_MAX: Duration = Duration::from_secs(1);
/// `O_NONBLOCK` of Linux: to open a pipe does not wait for a reader, and to write does not wait for ever.
const NONBLOCKING: i32 = 0o4000;
/// Access to a new file: its owner, and its group for programs that collect logs.
const FILE_MODE: u32 = 0o640;

/// Place that lines are written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineDestination {
    /// A file, written at its end. A pipe without a reader is waited for; lines are lost until one
    /// reads.
    File(PathBuf),
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Writer of lines. After it was dropped, the lines up to then are still written.
#[derive(Debug)]
pub struct LineWriter {
    items: SyncSender<Item>,
    lost: Arc<AtomicU64>,
}

/// Entry of the queue.
#[derive(Debug)]
enum Item {
    Line(String),
    /// All lines before this are to be written, and then this sender is notified.
    Flush(SyncSender<()>),
}

impl LineWriter {
    /// Opens a place. `lost` counts the lines that were lost: there was no room, or they could not be
    /// written.
    ///
    /// # Errors
    /// Returns an error if the place can't be opened or no thread can be started.
    pub fn open(place: &LineDestination, lost: Arc<AtomicU64>) -> io::Result<Self> {
        let mut out = Out::new(place)?;
        let (items, waiting) = sync_channel(LINES_MAX);
        let counted = Arc::clone(&lost);
        let thread = thread::Builder::new().name("lines".to_owned());
        thread.spawn(move || write_all(&mut out, &waiting, &counted))?;
        Ok(Self { items, lost })
    }

    /// Writes a line, without waiting. A line for which there is no room is counted as lost.
    pub fn write(&self, line: String) {
        if self.items.try_send(Item::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines so far are written, `patience` at most. Returns false if some may not be.
    pub fn flush(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let (tell, told) = sync_channel(1);
        let mut item = Item::Flush(tell);
        while let Err(TrySendError::Full(back)) = self.items.try_send(item) {
            if Instant::now() >= until {
                return false;
            }
            item = back;
            thread::sleep(LOOK);
        }
        told.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok()
    }
}

fn write_all(out: &mut Out, items: &Receiver<Item>, lost: &AtomicU64) {
    loop {
        let first = match items.recv_timeout(REOPEN) {
            Ok(item) => item,
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = out.reopen_if_moved() {
                    out.failed(&error);
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let mut taken = 0;
        let mut written = out.reopen_if_moved();
        let mut waiting = None;
        // Items that arrived during the last write are written in one piece.
        for item in std::iter::once(first).chain(items.try_iter()) {
            match item {
                Item::Line(line) => {
                    taken += 1;
                    written = written.and_then(|()| out.line(&line));
                }
                Item::Flush(tell) => waiting = Some(tell),
            }
            if taken >= LINES_MAX as u64 || waiting.is_some() {
                break;
            }
        }
        match written.and_then(|()| out.flush()) {
            Ok(()) => out.is_failing = false,
            Err(error) => {
                lost.fetch_add(taken, Ordering::Relaxed);
                out.failed(&error);
            }
        }
        if let Some(tell) = waiting {
            // Nobody may wait for it any more.
            let _is_told = tell.send(());
        }
    }
}

/// Open place.
struct Out {
    place: LineDestination,
    /// `None` before a pipe has a reader.
    writer: Option<BufWriter<PatientFile>>,
    /// Device and number of the open file; `None` for a standard stream.
    file: Option<(u64, u64)>,
    is_failing: bool,
    /// True if a part of a line may be the last that was written.
    is_torn: bool,
}

/// Opens a file; a pipe's reader may just be starting again.
fn open_patiently(open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    let until = Instant::now() + STUCK_MAX;
    loop {
        match open() {
            // No reader: `ENXIO` has no kind of its own.
            Err(error) if error.raw_os_error() == Some(6) && Instant::now() < until => {
                thread::sleep(LOOK);
            }
            done => return done,
        }
    }
}

/// File that waits for [`STUCK_MAX`] at most.
struct PatientFile(File);

impl Write for PatientFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let until = Instant::now() + STUCK_MAX;
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() >= until {
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "no process reads it"));
                    }
                    thread::sleep(LOOK);
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Out {
    fn new(place: &LineDestination) -> io::Result<Self> {
        let mut out = Self {
            place: place.clone(),
            writer: None,
            file: None,
            is_failing: false,
            is_torn: false,
        };
        // A pipe can be opened once it has a reader.
        if !out.is_pipe() {
            out.open()?;
        }
        Ok(out)
    }

    fn is_pipe(&self) -> bool {
        let LineDestination::File(path) = &self.place else { return false };
        std::fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo())
    }

    fn open(&mut self) -> io::Result<()> {
        // A standard stream is opened a second time: a write that hangs would hold its lock.
        let file = match &self.place {
            LineDestination::Stdout => File::from(io::stdout().as_fd().try_clone_to_owned()?),
            LineDestination::Stderr => File::from(io::stderr().as_fd().try_clone_to_owned()?),
            LineDestination::File(path) => {
                let mut options = OpenOptions::new();
                options.create(true).append(true).mode(FILE_MODE).custom_flags(NONBLOCKING);
                let file = open_patiently(|| options.open(path))?;
                let about = file.metadata()?;
                self.file = Some((about.dev(), about.ino()));
                file
            }
        };
        self.writer = Some(BufWriter::with_capacity(BUFFER_BYTES, PatientFile(file)));
        self.is_torn = false;
        Ok(())
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        if self.writer.is_none() {
            self.open()?;
        }
        let Some(writer) = &mut self.writer else { return Err(io::ErrorKind::NotFound.into()) };
        if std::mem::take(&mut self.is_torn) {
            writer.write_all(b"\n")?;
        }
        writer.write_all(line.as_bytes())?;
        writer.write_all(b"\n")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.as_mut().map_or(Ok(()), Write::flush)
    }

    /// Notes that lines were lost.
    fn failed(&mut self, error: &io::Error) {
        // Only the first failure in a row is logged: a full disk would fill the log, too. A failure
        // of standard error cannot be logged at all.
        if !self.is_failing && self.place != LineDestination::Stderr {
            tracing::error!(%error, "requests can't be written to the access log");
        }
        (self.is_failing, self.is_torn) = (true, true);
        // Lines that the buffer still holds count as lost. A pipe is opened again, for its next
        // reader.
        let writer = self.writer.take().map(|writer| writer.into_parts().0);
        self.writer = writer
            .filter(|_| !self.is_pipe())
            .map(|file| BufWriter::with_capacity(BUFFER_BYTES, file));
    }

    /// Opens the file again if another one, or none, has its name now.
    ///
    /// # Errors
    /// Returns an error if that fails and lines written to the old file could not be read by any
    /// program.
    fn reopen_if_moved(&mut self) -> io::Result<()> {
        let (LineDestination::File(path), Some(known)) = (&self.place, self.file) else {
            return Ok(());
        };
        let now = std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()));
        if now == Some(known) {
            return Ok(());
        }
        let Err(error) = self.open() else { return Ok(()) };
        let old = self.writer.as_ref().map(|writer| writer.get_ref().0.metadata());
        let has_name = |about: io::Result<std::fs::Metadata>| about.is_ok_and(|it| it.nlink() > 0);
        if old.is_some_and(has_name) { Ok(()) } else { Err(error) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::path::Path;
    use std::process::Command;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn open(path: &Path) -> (LineWriter, Arc<AtomicU64>) {
        let lost = Arc::default();
        let place = LineDestination::File(path.to_owned());
        (LineWriter::open(&place, Arc::clone(&lost)).unwrap(), lost)
    }

    #[test]
    fn all_lines_are_there_once_they_are_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        std::fs::write(&path, "old\n").unwrap();
        let (writer, lost) = open(&path);
        (0..100).for_each(|number| writer.write(number.to_string()));
        assert!(writer.flush(PATIENCE));
        assert_eq!(lost.load(Ordering::Relaxed), 0);
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written.lines().count(), 101);
        assert!(written.starts_with("old\n0\n1\n") && written.ends_with("\n99\n"));
    }

    #[test]
    fn a_new_file_is_not_for_everybody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        drop(open(&path));
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o7137, 0, "{mode:o}");
    }

    #[test]
    fn lines_that_nobody_could_read_are_counted_and_the_next_file_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let (writer, lost) = open(&path);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        writer.write("lost".to_owned());
        assert!(writer.flush(PATIENCE));
        assert_eq!(lost.load(Ordering::Relaxed), 1);
        std::fs::remove_dir(&path).unwrap();
        writer.write("kept".to_owned());
        assert!(writer.flush(PATIENCE));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept\n");
    }

    #[test]
    fn a_pipe_without_a_reader_holds_up_no_file_that_takes_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (writer, lost) = open(&path);
        writer.write("lost".to_owned());
        assert!(writer.flush(PATIENCE));
        assert_eq!(lost.load(Ordering::Relaxed), 1);
        std::fs::remove_file(&path).unwrap();
        writer.write("kept".to_owned());
        assert!(writer.flush(PATIENCE));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept\n");
    }

    #[test]
    fn a_reader_that_stops_costs_lines_and_not_the_file_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Holds the pipe open, and reads nothing.
        let reader = File::options().read(true).write(true).open(&path).unwrap();
        let (writer, lost) = open(&path);
        (0..4).for_each(|_| writer.write("x".repeat(100_000)));
        assert!(writer.flush(PATIENCE));
        assert!(lost.load(Ordering::Relaxed) > 0);
        std::fs::remove_file(&path).unwrap();
        writer.write("kept".to_owned());
        assert!(writer.flush(PATIENCE));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "kept\n");
        drop(reader);
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let moved = folder.path().join("access.log.1");
        let mut out = Out::new(&LineDestination::File(path.clone())).unwrap();
        out.line("first").and_then(|()| out.flush()).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        out.reopen_if_moved().unwrap();
        out.line("second").and_then(|()| out.flush()).unwrap();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "first\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second\n");
    }

    #[test]
    fn what_can_t_be_written_is_counted() {
        let (writer, lost) = open(Path::new("/dev/full"));
        (0..3).for_each(|number| writer.write(number.to_string()));
        assert!(writer.flush(PATIENCE));
        assert_eq!(lost.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let place = LineDestination::File("/nowhere/access.log".into());
        assert!(LineWriter::open(&place, Arc::default()).is_err());
    }

    #[test]
    fn a_pipe_holds_nobody_up_and_each_of_its_readers_gets_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (writer, lost) = open(&path);
        let lines = LINES_MAX as u64 + 10;
        (0..lines).for_each(|number| writer.write(number.to_string()));
        assert!(!writer.flush(Duration::from_millis(20)), "nobody reads");
        // The thread may have taken one line to the pipe.
        let missing = lost.load(Ordering::Relaxed);
        assert!((9..=10).contains(&missing), "{missing}");
        let mut reader = BufReader::new(File::open(&path).unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, "0\n");
        drop(reader);
        // The first line after that finds out that the reader is gone, and is lost.
        while lost.load(Ordering::Relaxed) == missing {
            writer.write("nobody".to_owned());
            // wait: between two tries.
            thread::sleep(Duration::from_millis(1));
        }
        writer.write("somebody".to_owned());
        let reader = BufReader::new(File::open(&path).unwrap());
        assert!(reader.lines().map(Result::unwrap).any(|line| line == "somebody"));
    }
}
