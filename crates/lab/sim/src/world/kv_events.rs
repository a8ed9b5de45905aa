//! KV events: changes that engines publish of their caches, in transit to the nodes that read them.

use spillway_types::KvEvent;

use super::{Group, World, WorldEvent};
use crate::Time;
use crate::router::{CacheNews, CacheReport};

impl World {
    /// Lets the engines publish KV events where nodes read them.
    pub(super) fn begin_kv_events(&mut self) {
        for group in &self.groups {
            if self.nodes[group.nodes.clone()].iter().any(|node| node.router.follows_caches()) {
                for replica in group.replicas.clone() {
                    self.replicas[replica].publish_kv_events();
                    self.kv_streams.begin(replica);
                }
            }
        }
    }

    /// Sends the news that an engine has published to the nodes that own the replica.
    pub(super) fn send_kv_events(&mut self, replica: usize) {
        if !self.kv_streams.has(replica) {
            return;
        }
        let events = self.replicas[replica].take_kv_events();
        if events.is_empty() {
            return;
        }
        let (here, there, due) = self.kv_path(replica);
        if self.is_broken(here, there) {
            return self.kv_streams.lose(replica);
        }
        if self.kv_streams.take_gap(replica) {
            self.put_kv_news(replica, due, None);
        }
        self.put_kv_news(replica, due, Some(events));
    }

    /// Lets the nodes see that the stream of a replica broke.
    pub(super) fn break_kv_events(&mut self, replica: usize) {
        let (_, _, due) = self.kv_path(replica);
        self.put_kv_news(replica, due, None);
    }

    /// Returns the regions of a replica and of the nodes that own it, and when news that it
    /// publishes now arrives there.
    fn kv_path(&self, replica: usize) -> (usize, usize, Time) {
        let group = &self.groups[self.group_of(replica)];
        let home = group.homes[replica - group.replicas.start];
        let delay_us = (self.config.news.kv_events_ms * 1e3) as u64;
        (home, group.region, self.now.after_us(delay_us + self.way_us(home, group.region)))
    }

    /// Returns the group of nodes whose own a replica is.
    fn group_of(&self, replica: usize) -> usize {
        let is_of = |group: &Group| group.replicas.contains(&replica);
        self.groups.iter().position(is_of).unwrap_or_default()
    }

    fn put_kv_news(&mut self, replica: usize, due: Time, news: Option<Vec<KvEvent>>) {
        if let Some(due) = self.kv_streams.put(replica, due, news) {
            self.agenda.put(due, WorldEvent::KvEvents { replica });
        }
    }

    /// Sends the oldest batch that a replica published to the nodes that own the replica.
    pub(super) fn take_kv_events(&mut self, replica: usize) {
        let Some(news) = self.kv_streams.take(replica) else { return };
        let group = &self.groups[self.group_of(replica)];
        let report = CacheReport {
            replica: replica - group.replicas.start,
            news: news.as_deref().map_or(CacheNews::Missed, CacheNews::Events),
            now_ms: self.now.ms(),
        };
        for node in &mut self.nodes[group.nodes.clone()] {
            node.router.cache_told(&report);
        }
    }
}
