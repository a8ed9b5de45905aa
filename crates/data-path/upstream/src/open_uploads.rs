//! Uploads of an HTTP/2 connection to a replica.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;

/// Uploads whose reply has not ended, shared by a connection and its requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenUploads(Arc<UploadCount>);

#[derive(Debug, Default)]
struct UploadCount {
    open: AtomicUsize,
    /// True once the socket has ended, even if the connection's library does not know it yet.
    has_ended: AtomicBool,
    /// Task of the connection, while it waits for the last upload.
    connection: AtomicWaker,
}

/// An upload that counts as open until dropped.
#[derive(Debug)]
pub(crate) struct OpenUpload(Arc<UploadCount>);

impl OpenUploads {
    /// Counts one more upload.
    pub(crate) fn begin(&self) -> OpenUpload {
        self.0.open.fetch_add(1, Ordering::AcqRel);
        OpenUpload(Arc::clone(&self.0))
    }

    /// Notes that nothing more arrives on the connection.
    pub(crate) fn note_end(&self) {
        self.0.has_ended.store(true, Ordering::Release);
    }

    /// Returns true if nothing more arrives on the connection.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Acquire)
    }

    /// Returns ready once no upload is open.
    pub(crate) fn poll_none(&self, cx: &Context<'_>) -> Poll<()> {
        // Registered first, or the drop of the last upload in between would wake no task.
        self.0.connection.register(cx.waker());
        if self.0.open.load(Ordering::Acquire) == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for OpenUpload {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.connection.wake();
        }
    }
}
