//! Answer of a worker to the requests of clients.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use spillway_front::client::{ConnectionFacts, Entrance, Serve};

use crate::relay::{Pump, ReplyBody};
use crate::request::{note_large_head, serve};
use crate::worker::Worker;

/// Answer of one worker to the requests of clients.
#[derive(Clone, Debug)]
struct WorkerService(Arc<Worker>);

impl Serve for WorkerService {
    type ReplyBody = ReplyBody;
    type Pump = Pump;

    fn serve(
        &self,
        client: Arc<ConnectionFacts>,
        pump: Arc<Pump>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<ReplyBody>, Infallible>> + Send + Unpin + 'static + use<>
    {
        // Boxed, since hyper keeps the room for one as long as a connection is open, and most
        // connections are idle.
        Box::pin(serve(Arc::clone(&self.0), client, pump, request))
    }

    fn note_large_head(&self, client: Arc<ConnectionFacts>) {
        note_large_head(Arc::clone(&self.0), client);
    }
}

impl Worker {
    /// Returns the front door with this worker behind it.
    #[must_use]
    pub fn entrance(self: &Arc<Self>) -> Entrance<impl Serve + use<>> {
        let door = Arc::clone(&self.gateway.door);
        Entrance { door, service: WorkerService(Arc::clone(self)) }
    }
}
