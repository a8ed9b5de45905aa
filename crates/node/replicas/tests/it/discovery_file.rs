use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_replicas::discovery::{FileSource, Findings};
use spillway_testkit::eventually;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::support::DEADLINE;

struct Watched {
    texts: watch::Receiver<Findings<Arc<str>>>,
    tasks: TaskTracker,
    _stop: DropGuard,
}

/// Interval longer than any test takes, so that only the system's events can show a change.
const NEVER: Duration = Duration::from_secs(3600);

impl Watched {
    fn start(path: &Path, reread: Duration) -> Self {
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let source = FileSource { reread, ..FileSource::new(path.to_owned()) };
        let texts = source.watch(&tasks, stop.clone());
        Self { texts, tasks, _stop: stop.drop_guard() }
    }

    async fn until(&mut self, text: &str) {
        let found = self.texts.wait_for(|now| now.found.as_deref() == Some(text));
        assert!(timeout(DEADLINE, found).await.is_ok(), "{text:?} was not told");
    }
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("replicas.toml");
    (folder, path)
}

#[tokio::test]
async fn a_file_written_in_place_replaced_and_made_anew_is_told_each_time() {
    let (folder, path) = folder();
    fs::write(&path, "one").unwrap();
    let mut watched = Watched::start(&path, NEVER);
    watched.until("one").await;
    fs::write(&path, "two").unwrap();
    watched.until("two").await;

    let other = folder.path().join("other");
    fs::write(&other, "three").unwrap();
    fs::rename(&other, &path).unwrap();
    watched.until("three").await;

    fs::remove_file(&path).unwrap();
    fs::write(&path, "four").unwrap();
    watched.until("four").await;
    // A file that is missing for a while is noticed too when it returns.
    fs::remove_file(&path).unwrap();
    // wait: until the missing file was seen, which has no event.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(watched.texts.borrow().found.as_deref(), Some("four"), "the last text stays");
    fs::write(&path, "five").unwrap();
    watched.until("five").await;
}

#[tokio::test]
async fn links_that_are_swapped_are_noticed() {
    let (folder, path) = folder();
    for version in ["v1", "v2"] {
        fs::create_dir(folder.path().join(version)).unwrap();
        fs::write(folder.path().join(version).join("replicas.toml"), version).unwrap();
    }
    let link = folder.path().join("..data");
    std::os::unix::fs::symlink("v1", &link).unwrap();
    std::os::unix::fs::symlink("..data/replicas.toml", &path).unwrap();
    let mut watched = Watched::start(&path, NEVER);
    watched.until("v1").await;
    let next = folder.path().join("..data_tmp");
    std::os::unix::fs::symlink("v2", &next).unwrap();
    fs::rename(&next, &link).unwrap();
    watched.until("v2").await;
}

#[tokio::test]
async fn what_no_event_tells_of_is_found_by_reading_again() {
    let (folder, path) = folder();
    let missing = folder.path().join("later");
    let path = missing.join(path.file_name().unwrap());
    // The folder to watch does not exist.
    let mut watched = Watched::start(&path, Duration::from_millis(20));
    // This runtime has one thread: the task tries to watch before it comes back here.
    tokio::task::yield_now().await;
    fs::create_dir(&missing).unwrap();
    fs::write(&path, "one").unwrap();
    watched.until("one").await;
    fs::write(&path, "two").unwrap();
    watched.until("two").await;
}

#[tokio::test]
async fn a_text_is_told_only_when_it_stays_the_same() {
    let (_folder, path) = folder();
    fs::write(&path, "begin").unwrap();
    let mut watched = Watched::start(&path, Duration::from_millis(5));
    watched.until("begin").await;
    let mut told = watched.texts.clone();
    told.mark_unchanged();
    // A writer that truncates the file, and writes the rest bit by bit.
    let started = Instant::now();
    let mut text = String::new();
    fs::write(&path, "").unwrap();
    while started.elapsed() < Duration::from_millis(300) {
        text.push('x');
        fs::write(&path, &text).unwrap();
        // wait: the writer's own pace, well below the time for which a file must not change.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!told.has_changed().unwrap(), "{:?} was told", told.borrow());
    watched.until(&text).await;
}

#[tokio::test]
async fn what_is_no_text_or_too_much_keeps_the_last_one() {
    let (_folder, path) = folder();
    fs::write(&path, "one").unwrap();
    let mut watched = Watched::start(&path, Duration::from_millis(10));
    watched.until("one").await;
    for bad in [vec![0xff, 0xfe], vec![b'x'; (4 << 20) + 1]] {
        fs::write(&path, &bad).unwrap();
        // wait: until the file was surely read, which has no event.
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(watched.texts.borrow().found.as_deref(), Some("one"));
    }
    fs::write(&path, "two").unwrap();
    watched.until("two").await;
}

#[tokio::test]
async fn watching_ends_when_nobody_listens() {
    let (_folder, path) = folder();
    let Watched { texts, tasks, _stop } = Watched::start(&path, NEVER);
    eventually("the start", || !tasks.is_empty()).await;
    drop(texts);
    tasks.close();
    assert!(timeout(DEADLINE, tasks.wait()).await.is_ok());
}
