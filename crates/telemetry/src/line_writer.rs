//! Writer of lines to a file or to standard output, on a thread of its own: who has a line to write
//! never waits for a disk.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Most lines that wait for the disk: a second of 8,000 requests.
const LINES_MAX: usize = 8_192;
/// Bytes that are written at once, so that a busy node asks the system once in a hundred lines.
const BUFFER_BYTES: usize = 64 << 10;
/// Longest time for which a file that was moved away, as programs that rotate logs do, is written on.
const REOPEN: Duration = Duration::from_secs(1);

/// Writer of lines. When it is dropped, all lines up to then are written.
#[derive(Debug)]
pub struct LineWriter {
    /// `None` once it is being dropped.
    lines: Option<SyncSender<String>>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl LineWriter {
    /// Opens a file to write at its end, or standard output if `path` is `None`.
    ///
    /// # Errors
    /// Returns an error if the file can't be opened or no thread can be started.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let out = Out::open(path)?;
        let (lines, waiting) = sync_channel(LINES_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let thread = thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            write_all(out, &waiting, &counted);
        })?;
        Ok(Self { lines: Some(lines), lost, thread: Some(thread) })
    }

    /// Writes a line, without waiting. A line for which there is no room is counted as lost.
    pub fn write(&self, line: String) {
        let Some(lines) = &self.lines else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = lines.try_send(line) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of lines that were lost since it was opened: there was no room, or they
    /// could not be written.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        // Without a sender the thread ends behind the last line.
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn write_all(mut out: Out, lines: &Receiver<String>, lost: &AtomicU64) {
    loop {
        let line = match lines.recv_timeout(REOPEN) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                out.reopen_if_moved();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        out.reopen_if_moved();
        let mut taken = 1;
        let mut written = out.line(&line);
        // What has come meanwhile goes out in one piece.
        while let Ok(line) = lines.try_recv() {
            taken += 1;
            written = written.and_then(|()| out.line(&line));
            if taken >= LINES_MAX as u64 {
                break;
            }
        }
        if let Err(error) = written.and_then(|()| out.flush()) {
            // The first of a row alone is told: a full disk would fill the log, too.
            if !out.is_failing {
                tracing::error!(%error, "requests can't be written to the access log");
            }
            out.is_failing = true;
            lost.fetch_add(taken, Ordering::Relaxed);
        } else {
            out.is_failing = false;
        }
    }
}

/// Place that lines go to.
struct Out {
    path: Option<PathBuf>,
    writer: BufWriter<Box<dyn Write + Send>>,
    /// Device and number of the open file; `None` for standard output.
    file: Option<(u64, u64)>,
    is_failing: bool,
}

impl Out {
    fn open(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path else {
            let writer = buffered(io::stdout());
            return Ok(Self { path: None, writer, file: None, is_failing: false });
        };
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let place = place(&file)?;
        let writer = buffered(file);
        Ok(Self { path: Some(path.to_owned()), writer, file: Some(place), is_failing: false })
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.writer.write_all(line.as_bytes())?;
        self.writer.write_all(b"\n")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Opens the file anew if another one, or none, has its name now.
    fn reopen_if_moved(&mut self) {
        let Some(path) = self.path.clone() else { return };
        let now = std::fs::metadata(&path).ok().map(|about| (about.dev(), about.ino()));
        if now != self.file
            && let Ok(opened) = Self::open(Some(&path))
        {
            *self = opened;
        }
    }
}

fn buffered(out: impl Write + Send + 'static) -> BufWriter<Box<dyn Write + Send>> {
    BufWriter::with_capacity(BUFFER_BYTES, Box::new(out))
}

fn place(file: &File) -> io::Result<(u64, u64)> {
    let about = file.metadata()?;
    Ok((about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lines_are_there_once_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        std::fs::write(&path, "old\n").unwrap();
        let writer = LineWriter::open(Some(&path)).unwrap();
        (0..100).for_each(|number| writer.write(number.to_string()));
        assert_eq!(writer.lost(), 0);
        drop(writer);
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written.lines().count(), 101);
        assert!(written.starts_with("old\n0\n1\n") && written.ends_with("\n99\n"));
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let moved = folder.path().join("access.log.1");
        let mut out = Out::open(Some(&path)).unwrap();
        out.line("first").and_then(|()| out.flush()).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        out.reopen_if_moved();
        out.line("second").and_then(|()| out.flush()).unwrap();
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "first\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second\n");
    }

    #[test]
    fn what_can_t_be_written_is_counted() {
        let writer = LineWriter::open(Some(Path::new("/dev/full"))).unwrap();
        let lost = Arc::clone(&writer.lost);
        (0..3).for_each(|number| writer.write(number.to_string()));
        drop(writer);
        assert_eq!(lost.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        assert!(LineWriter::open(Some(Path::new("/nowhere/access.log"))).is_err());
    }
}
