//! Whether health, metrics and the admin API answer while requests pile up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::caller::{Ask, Caller};
use super::note::Note;
use super::stage::Stage;
use crate::trial::task::spawn;

/// Between two looks at each.
const GAP: Duration = Duration::from_millis(100);
/// What is looked at: on the port of clients, and on that of operators.
const ON_DATA: [&str; 2] = ["/livez", "/v1/models"];
const ON_ADMIN: [&str; 3] = ["/readyz", "/replicas", "/metrics"];

/// Looks at each of them all the time, until it is dropped.
pub(crate) struct Lanes {
    notes: Arc<Mutex<Vec<Note>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Lanes {
    pub(crate) fn start(stage: &Stage) -> Self {
        let notes = Arc::<Mutex<Vec<Note>>>::default();
        let on = |caller: &Caller, path: &str| {
            let (caller, ask, notes) = (caller.clone(), Ask::get(path), Arc::clone(&notes));
            spawn(look(caller, ask, notes))
        };
        let data = ON_DATA.iter().map(|path| on(&stage.data, path));
        let tasks = data.chain(ON_ADMIN.iter().map(|path| on(&stage.admin, path))).collect();
        Self { notes, tasks }
    }

    /// Milliseconds of each look, and how many got no 200.
    pub(crate) fn end(self) -> (Vec<f64>, usize) {
        let notes = std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        let failed = notes.iter().filter(|note| !note.is_good()).count();
        (notes.iter().map(Note::took_ms).collect(), failed)
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn look(caller: Caller, ask: Ask, notes: Arc<Mutex<Vec<Note>>>) {
    let mut ticks = interval(GAP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let note = caller.ask(&ask, Instant::now()).await;
        notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }
}
