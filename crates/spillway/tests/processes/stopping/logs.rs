//! Logs that can't be written, and readers of logs that hang: nothing else changes.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use spillway_testkit::PATIENCE;

use super::alone::{Alone, free_port};
use crate::caller::{call, chat, status};

/// A node without replicas that answer, and its ports.
struct Logging {
    data: u16,
    admin: u16,
}

impl Logging {
    fn new() -> Self {
        Self { data: free_port(), admin: free_port() }
    }

    fn config(&self, more: &str) -> String {
        let (data, admin, gone) = (self.data, self.admin, free_port());
        format!(
            "{more}\n[auth]\nmode = \"none\"\n[[listener]]\naddress = \"127.0.0.1:{data}\"\n\
             [admin]\naddress = \"127.0.0.1:{admin}\"\n[[replica]]\nname = \"a\"\n\
             url = \"http://127.0.0.1:{gone}\"\nmodels = [\"tiny\"]\nhealth.interval_ms = 100\n"
        )
    }

    async fn get(&self, port: u16, path: &str) -> String {
        call(([127, 0, 0, 1], port).into(), &format!("GET {path}"), "").await.unwrap_or_default()
    }

    /// Waits until a page is as wanted.
    async fn shows(&self, port: u16, path: &str, is_wanted: impl Fn(&str) -> bool) {
        let by = Instant::now() + PATIENCE;
        loop {
            let page = self.get(port, path).await;
            if is_wanted(&page) {
                return;
            }
            assert!(Instant::now() < by, "{path} never is as wanted: {page}");
            // wait: between two looks
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Checks that the node does all that it has to do, and ends.
    async fn lives_and_ends(&self, node: &mut Alone, more: &str) {
        self.shows(self.data, "/livez", |page| status(page) == 200).await;
        self.shows(self.admin, "/replicas", |page| page.contains("\"down\"")).await;
        node.reconfigure(&self.config(&format!("{more}\n[aliases]\nother = \"tiny\"\n")));
        self.shows(self.data, "/v1/models", |page| page.contains("\"other\"")).await;
        node.terminate();
        assert_eq!(node.ended().code(), Some(0));
    }
}

/// Returns a pipe that is full, and its end that is never read. The thread keeps it full.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    std::thread::spawn(move || while filler.write_all(&[b'x'; 4_096]).is_ok() {});
    (reader, writer)
}

fn lost(page: &str, log: &str) -> f64 {
    let start = format!("spillway_log_lines_lost_total{{log=\"{log}\"");
    let line = page.lines().find(|line| line.starts_with(&start)).unwrap_or_default();
    line.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn standard_error_that_can_t_be_written_costs_lines_and_nothing_else() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for stderr in [Stdio::from(full), Stdio::from(closed)] {
        let logging = Logging::new();
        let mut node = Alone::start_to(&logging.config(""), Stdio::null(), stderr);
        logging.shows(logging.admin, "/metrics", |page| lost(page, "node") > 0.0).await;
        logging.lives_and_ends(&mut node, "").await;
    }
}

#[tokio::test]
async fn a_reader_of_standard_error_that_hangs_holds_nothing_up() {
    let (_reader, stderr) = full_pipe();
    let logging = Logging::new();
    let mut node = Alone::start_to(&logging.config(""), Stdio::null(), stderr.into());
    logging.lives_and_ends(&mut node, "").await;
}

#[tokio::test]
async fn a_reader_of_the_access_log_that_hangs_holds_nothing_up() {
    let (_reader, stdout) = full_pipe();
    let logging = Logging::new();
    let more = "[access_log]\nrequests = \"all\"";
    let mut node = Alone::start_to(&logging.config(more), stdout.into(), Stdio::null());
    logging.shows(logging.data, "/livez", |page| status(page) == 200).await;
    let address = ([127, 0, 0, 1], logging.data).into();
    for _ in 0..100 {
        assert!(chat(address, false, 1).await.is_err(), "no replica answers");
    }
    logging.lives_and_ends(&mut node, more).await;
}

#[tokio::test]
async fn an_access_log_that_is_a_pipe_without_a_reader_is_waited_for_by_nobody() {
    let folder = tempfile::TempDir::new().unwrap();
    let pipe = folder.path().join("access.pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let more = format!("[access_log]\nrequests = \"all\"\nfile = \"{}\"", pipe.display());
    let logging = Logging::new();
    let mut node = Alone::start_to(&logging.config(&more), Stdio::null(), Stdio::null());
    logging.lives_and_ends(&mut node, &more).await;
    // A reader that comes later gets the lines.
    let logging = Logging::new();
    let mut node = Alone::start_to(&logging.config(&more), Stdio::null(), Stdio::null());
    logging.shows(logging.data, "/livez", |page| status(page) == 200).await;
    let address = ([127, 0, 0, 1], logging.data).into();
    assert!(chat(address, false, 1).await.is_err(), "no replica answers");
    let mut line = String::new();
    BufReader::new(File::open(&pipe).unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("\"tiny\""), "{line}");
    node.terminate();
    assert_eq!(node.ended().code(), Some(0));
}

#[test]
fn a_signal_ends_a_node_however_early_it_comes() {
    let logging = Logging::new();
    for delay_ms in [0, 1, 2, 4, 8, 16, 32] {
        let mut node = Alone::start_to(&logging.config(""), Stdio::null(), Stdio::null());
        // wait: the signal is to come at another moment of the start each time.
        std::thread::sleep(Duration::from_millis(delay_ms));
        node.terminate();
        let ended = node.ended();
        // Before the first line of the program, the system's default ends it.
        assert!(ended.success() || ended.code().is_none(), "{ended:?}");
    }
}
