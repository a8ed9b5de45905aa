//! Recorder of the operations of concurrent clients.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::history::{Operation, OperationEnd};

/// Most operations that a recorder notes; a search over more would take too long.
pub const OPERATIONS_MAX: usize = 10_000_000;

/// Recorder of operations, for any number of clients on any number of threads.
#[derive(Debug)]
pub struct Recorder<K, I, O> {
    start: Instant,
    operations: Mutex<Vec<Operation<K, I, O>>>,
}

/// Operation under way. Its end is unknown if this is dropped.
#[derive(Debug)]
pub struct Pending<'a, K, I, O> {
    recorder: &'a Recorder<K, I, O>,
    index: Option<usize>,
}

impl<K, I, O> Default for Recorder<K, I, O> {
    fn default() -> Self {
        Self { start: Instant::now(), operations: Mutex::new(Vec::new()) }
    }
}

impl<K, I, O> Recorder<K, I, O> {
    /// Notes the call of an operation. Call this right before the operation is sent.
    pub fn call(&self, client: u32, key: K, input: I) -> Pending<'_, K, I, O> {
        let mut operations = self.lock();
        let index = operations.len();
        // Not noted, and neither is its end.
        if index >= OPERATIONS_MAX {
            return Pending { recorder: self, index: None };
        }
        // Inside the lock, so that the list is in the order of time.
        let call_ns = self.now_ns();
        operations.push(Operation { client, key, input, call_ns, end: OperationEnd::Unknown });
        Pending { recorder: self, index: Some(index) }
    }

    /// Returns all operations so far; those under way have an unknown end.
    pub fn history(&self) -> Vec<Operation<K, I, O>>
    where
        K: Clone,
        I: Clone,
        O: Clone,
    {
        self.lock().clone()
    }

    /// Returns all operations.
    pub fn into_history(self) -> Vec<Operation<K, I, O>> {
        self.operations.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, index: Option<usize>, end: impl FnOnce(u64) -> OperationEnd<O>) {
        // Before the lock: waiting for it must not make the operation look longer than it was.
        let at_ns = self.now_ns();
        let mut operations = self.lock();
        if let Some(operation) = index.and_then(|index| operations.get_mut(index)) {
            operation.end = end(at_ns);
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Locks the list. A poisoned lock is fine: each operation is pushed or changed in one step.
    fn lock(&self) -> MutexGuard<'_, Vec<Operation<K, I, O>>> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, I, O> Pending<'_, K, I, O> {
    /// Notes an answer. Call this right after the answer has come.
    pub fn returned(self, output: O) {
        self.recorder.end(self.index, |at_ns| OperationEnd::Returned { at_ns, output });
    }

    /// Notes that the operation certainly had no effect and never will.
    pub fn failed(self) {
        self.recorder.end(self.index, |_| OperationEnd::Failed);
    }

    /// Notes that the operation may take effect at any later time, or never. Dropping does the
    /// same.
    pub fn unknown(self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_noted_with_its_operation() {
        let recorder = Recorder::default();
        let first = recorder.call(1, "k", 'a');
        let second = recorder.call(2, "k", 'b');
        recorder.call(3, "k", 'c').unknown();
        let fourth = recorder.call(4, "k", 'd');
        second.returned(7);
        fourth.failed();
        assert_eq!(recorder.history().len(), 4);
        first.unknown();
        let history = recorder.into_history();
        assert!(history.is_sorted_by_key(|operation| operation.call_ns));
        let ends: Vec<_> = history.iter().map(|operation| &operation.end).collect();
        assert!(matches!(
            ends[..],
            [
                OperationEnd::Unknown,
                OperationEnd::Returned { output: 7, .. },
                OperationEnd::Unknown,
                OperationEnd::Failed
            ]
        ));
        let OperationEnd::Returned { at_ns, .. } = ends[1] else { panic!("it returned") };
        assert!(*at_ns >= history[3].call_ns);
    }

    #[test]
    fn clients_on_many_threads_lose_nothing() {
        let recorder = Recorder::default();
        std::thread::scope(|scope| {
            for client in 0..8 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for n in 0..500 {
                        recorder.call(client, n % 7, n).returned(client);
                    }
                });
            }
        });
        let history = recorder.into_history();
        assert_eq!(history.len(), 4_000);
        for operation in history {
            assert!(matches!(operation.end, OperationEnd::Returned { at_ns, output }
                    if at_ns >= operation.call_ns && output == operation.client));
        }
    }
}
