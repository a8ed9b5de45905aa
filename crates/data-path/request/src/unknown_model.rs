//! Requests whose model no view has: they wait for the replicas to be asked again, or for one that starts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spillway_protocol::{ErrorKind, GatewayError};
use spillway_transport::coarse_clock;
use spillway_types::ModelName;
use spillway_view::{Route, View};
use tokio::time::timeout_at;

use crate::asked_timeout::asked_timeout;
use crate::gateway::RoutingState;
use crate::surroundings::{Surroundings, no_such_path};
use crate::target::{ResolvedTarget, Wanted};

/// Longest wait of a request for its model to appear. Replicas nearby have answered long before.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Longest wait that can be set for a replica that starts, in milliseconds: a day.
const WAIT_MS_END: u64 = 86_400_000;

impl RoutingState {
    /// Has the replicas asked for their models, and looks into each new view until `find` returns
    /// something, or the replicas have answered. Returns `None` at once if they were asked a moment
    /// ago.
    pub async fn look_again<T>(&self, mut find: impl FnMut(Arc<View>) -> Option<T>) -> Option<T> {
        let now = coarse_clock::now();
        let mut lookup = self.model_lookups.begin(now)?;
        loop {
            // First, so that the view is the one at the lookup's end or newer.
            let is_over = lookup.is_over();
            if let Some(found) = find(self.view()) {
                return Some(found);
            }
            let until = (now + WAIT_MAX).into();
            if is_over || timeout_at(until, lookup.views.over.changed()).await.is_err() {
                return None;
            }
        }
    }
}

impl Surroundings<'_> {
    /// Finds route, model and version like [`Surroundings::find`]. An unknown model may have been
    /// loaded just now, so the replicas are asked again before the request is refused. A model that a
    /// replica which starts may have is waited for where the route says so.
    ///
    /// # Errors
    /// Returns an error if nothing here serves the model.
    pub async fn look_for(
        self,
        prefixed: Option<Arc<Route>>,
        wanted: Wanted<'_>,
    ) -> Result<ResolvedTarget, GatewayError> {
        match self.find(prefixed.clone(), wanted) {
            Err(error) if self.may_appear(&error, wanted) => {
                // Boxed, since few requests need its room.
                Box::pin(self.find_again(prefixed, wanted)).await.ok_or(error)
            }
            Err(error) => match self.start_waited_until(&error, prefixed.as_deref(), wanted) {
                Some(until) => Box::pin(self.await_start(error, prefixed, wanted, until)).await,
                None => Err(error),
            },
            found => found,
        }
    }

    /// Returns true if a replica of this region may have loaded the model since, for this client.
    fn may_appear(self, error: &GatewayError, wanted: Wanted<'_>) -> bool {
        error.kind == ErrorKind::ModelNotFound
            && self.gateway.routing.model_lookups.is_open()
            && self.guest.is_none()
            && wanted.stored_at.is_none()
            && wanted.name.is_some_and(|name| {
                self.grant.allows_name(name, |name| self.view.names().behind(name))
            })
    }

    /// Returns the end of the wait for a replica that starts, and whose models are not known; `None`
    /// if the request does not wait.
    fn start_waited_until(
        self,
        error: &GatewayError,
        prefixed: Option<&Route>,
        wanted: Wanted<'_>,
    ) -> Option<Instant> {
        // Without a model's name, and for a model without a replica, the error is another one.
        let is_unread = error.kind == ErrorKind::NoReplica && !self.view.unread().is_empty();
        if !is_unread || self.guest.is_some() || wanted.stored_at.is_some() {
            return None;
        }
        let model = wanted.name.map(ModelName::from);
        let own = || self.view.route_of_model(model.as_ref()).map(Arc::as_ref);
        let wait_ms = prefixed.or_else(own)?.spec.queue.start_wait_ms;
        let wait = Duration::from_millis(wait_ms.min(WAIT_MS_END));
        let asked = asked_timeout(&self.head.headers).ok()?;
        (wait_ms > 0).then(|| self.started + asked.map_or(wait, |asked| asked.min(wait)))
    }

    /// Waits until a view has the model, or all replicas have reported their models, or the time is
    /// over.
    async fn await_start(
        self,
        mut error: GatewayError,
        prefixed: Option<Arc<Route>>,
        wanted: Wanted<'_>,
        until: Instant,
    ) -> Result<ResolvedTarget, GatewayError> {
        let Some(mut views) = self.gateway.routing.model_lookups.new_views() else {
            return Err(error);
        };
        loop {
            match self.find_in(self.gateway.routing.view(), prefixed.as_ref(), wanted) {
                Ok(found) => return Ok(found),
                Err(newer) => error = newer,
            }
            let is_unread = error.kind == ErrorKind::NoReplica;
            if !is_unread || timeout_at(until.into(), views.over.changed()).await.is_err() {
                return Err(error);
            }
        }
    }

    async fn find_again(
        self,
        prefixed: Option<Arc<Route>>,
        wanted: Wanted<'_>,
    ) -> Option<ResolvedTarget> {
        let find = |view: Arc<View>| self.find_in(view, prefixed.as_ref(), wanted).ok();
        self.gateway.routing.look_again(find).await
    }

    /// Finds route, model and version in a newer view.
    fn find_in(
        self,
        view: Arc<View>,
        prefixed: Option<&Arc<Route>>,
        wanted: Wanted<'_>,
    ) -> Result<ResolvedTarget, GatewayError> {
        let again = |route| view.route_again(route).ok_or_else(|| no_such_path(self.head));
        let route = prefixed.map(|route| again(route)).transpose()?;
        let mut found = Surroundings { view: &view, ..self }.find(route, wanted)?;
        found.target.newer_view = Some(view);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spillway_types::RouteName;
    use spillway_view::{QueueSpec, RouteSpec};
    use tokio::time::timeout;

    use super::*;
    use crate::test_around::{Around, Asked, Served, guest, model, route, run};

    const CHAT: &str = "/v1/chat/completions";

    fn asked() -> Asked {
        Asked::post(CHAT, r#"{"model":"b","messages":[]}"#)
    }

    /// Returns a node whose replicas may load models at any time.
    fn learning(models: &[&str]) -> Around {
        let around = Around::new(Served::models(models));
        around.gateway.routing.model_lookups.set_open(true);
        around
    }

    /// Runs a request while the keeper has the replicas asked, which then serve `models`.
    fn kind_after(around: &Around, models: &[&str]) -> Result<String, ErrorKind> {
        let keeper = async {
            let lookups = &around.gateway.routing.model_lookups;
            let number = lookups.asked().await;
            around.gateway.routing.replace_view(Served::models(models).view());
            lookups.announce();
            lookups.finish(number);
            std::future::pending::<()>().await;
        };
        run(async {
            tokio::select! {
                prepared = around.prepare(asked()) => prepared
                    .map(|prepared| model(&prepared).unwrap_or_default().to_owned())
                    .map_err(|error| error.kind),
                () = keeper => unreachable!(),
            }
        })
    }

    #[test]
    fn an_unknown_model_is_served_once_a_replica_turns_out_to_have_it() {
        assert_eq!(kind_after(&learning(&["a"]), &["a", "b"]), Ok("b".to_owned()));
        let unknown = Err(ErrorKind::ModelNotFound);
        assert_eq!(kind_after(&learning(&["a"]), &["a", "c"]), unknown);
        // Lists of replicas do not count here.
        let around = Around::new(Served::models(&["a"]));
        assert_eq!(kind_after(&around, &["a", "b"]), unknown);
    }

    #[test]
    fn replicas_are_asked_for_no_client_that_may_not_have_the_model() {
        let unknown = Err(ErrorKind::ModelNotFound);
        let around = learning(&["a"]).allow(&["a"]);
        assert_eq!(kind_after(&around, &["a", "b"]), unknown);
        let around = Around { guest: Some(guest(Some("b"))), ..learning(&["a"]) };
        assert_eq!(kind_after(&around, &["a", "b"]), unknown, "its sender asks");
    }

    #[test]
    fn a_lookup_that_no_replica_answers_ends() {
        let found = run(async {
            let around = learning(&["a"]);
            timeout(2 * WAIT_MAX, around.prepare(asked())).await.map(|found| found.is_err())
        });
        assert_eq!(found.ok(), Some(true));
    }

    /// Returns a node with a replica that starts, and a route that waits for it.
    fn starting(start_wait_ms: u64) -> Around {
        let mut served = Served::models(&["a"]);
        served.routes = vec![RouteSpec {
            queue: QueueSpec { start_wait_ms, ..QueueSpec::default() },
            ..route("all")
        }];
        served.unread.insert("replica-of-a".into());
        Around::new(served)
    }

    #[test]
    fn a_route_waits_for_a_replica_that_starts_as_long_as_it_says_and_the_client_does() {
        let waited_s = |around: &Around, asked: Asked| {
            run(async {
                let begun = tokio::time::Instant::now();
                let kind = around.prepare(asked).await.map(|_| ()).map_err(|error| error.kind);
                assert_eq!(kind, Err(ErrorKind::NoReplica));
                begun.elapsed().as_secs()
            })
        };
        let limit = |ms: &str| asked().with("x-request-timeout-ms", ms);
        assert_eq!(waited_s(&starting(0), asked()), 0);
        assert!((29..=30).contains(&waited_s(&starting(30_000), asked())));
        assert!((4..=5).contains(&waited_s(&starting(30_000), limit("5000"))));
        assert!((29..=30).contains(&waited_s(&starting(30_000), limit("60000"))));
        let around = Around { guest: Some(guest(None)), ..starting(30_000) };
        assert_eq!(waited_s(&around, asked()), 0, "its sender waits");
    }

    #[test]
    fn a_request_that_waits_for_a_start_ends_with_what_the_replica_reports() {
        for (models, expected) in
            [(&["a", "b"][..], Ok("b".to_owned())), (&["a"], Err(ErrorKind::ModelNotFound))]
        {
            let around = starting(30_000);
            let found = run(async {
                let news = async {
                    // wait: paused time.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    around.gateway.routing.replace_view(Served::models(models).view());
                    around.gateway.routing.model_lookups.announce();
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    prepared = around.prepare(asked()) => prepared
                        .map(|prepared| model(&prepared).unwrap_or_default().to_owned())
                        .map_err(|error| error.kind),
                    () = news => unreachable!(),
                }
            });
            assert_eq!(found, expected, "{models:?}");
        }
    }

    #[test]
    fn a_route_that_a_newer_view_lacks_is_not_found() {
        let around = learning(&["a"]);
        let head = asked().head();
        let newer = Arc::new(Served::models(&["b"]).view());
        let mut other = Served::models(&["b"]);
        other.routes = vec![route("other")];
        let other = Arc::new(other.view());
        let known = Arc::clone(around.gateway.routing.view().routes().next().expect("a route"));
        assert_eq!(known.spec.name, RouteName::from("all"));
        let wanted = Wanted::named(Some("b"), crate::target::NamePosition::Body);
        for (view, expected) in [(newer, None), (other, Some(ErrorKind::RouteNotFound))] {
            let found = around.surround(&head, |around| around.find_in(view, Some(&known), wanted));
            assert_eq!(found.err().map(|error| error.kind), expected);
        }
    }
}
