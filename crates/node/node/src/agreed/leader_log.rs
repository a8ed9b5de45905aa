//! Logs changes of the leader, and whether a majority of voters and the disk answer: on every node,
//! since an operator may look at any.

use std::sync::Weak;
use std::time::Duration;

use spillway_control_plane::ControlPlane;
use spillway_raft::{Role, Status};
use tokio::time::{MissedTickBehavior, interval};

/// Period between two looks: an operator reads the log later than that anyway.
const PERIOD: Duration = Duration::from_millis(500);
/// Age of a node's state from which on the quorum counts as lost. A change of the leader takes less.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// Time that a write has been waiting for the disk from which on the disk counts as hanging.
const HANGS_AFTER: Duration = Duration::from_secs(2);

/// State that was logged last.
#[derive(Debug, Default)]
struct LeaderLog {
    leader: Option<String>,
    is_lost: bool,
    /// Longest time that a write was seen waiting while the disk hangs; `None` while it does not.
    hangs_for: Option<Duration>,
}

/// News about the leader or the quorum.
#[derive(Debug, PartialEq, Eq)]
enum News {
    /// The first leader that this node knows of.
    First(String),
    /// Another node leads.
    Changed { from: String, to: String },
    /// No majority of voters has answered for a while.
    QuorumLost,
    /// A majority answers again.
    QuorumBack,
    /// A write has been waiting for the disk for so long.
    DiskHangs(Duration),
    /// The disk answers again, after about so long.
    DiskBack(Duration),
}

/// Logs news as long as there is a control plane.
pub(super) async fn run(control_plane: Weak<ControlPlane>) {
    let mut log = LeaderLog::default();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(control_plane) = control_plane.upgrade() else { return };
        let status = control_plane.status();
        for news in log.look(&status) {
            tell(&news, &status);
        }
    }
}

impl LeaderLog {
    /// Compares a status with the last logged state, and returns the changes.
    fn look(&mut self, status: &Status) -> Vec<News> {
        let mut news = Vec::from_iter(self.look_at_disk(status));
        if status.cluster.is_none() {
            return news;
        }
        // A node that has never known a leader is just starting.
        let is_old = status.age.is_some_and(|age| age > LOST_AFTER);
        let is_lost = is_old || status.role == Role::IsolatedLeader;
        match (self.is_lost, is_lost) {
            (false, true) => news.push(News::QuorumLost),
            (true, false) => news.push(News::QuorumBack),
            _ => {}
        }
        self.is_lost = is_lost;
        let leader = status.leader.and_then(|id| status.members.get(&id));
        let Some(leader) = leader.map(|member| member.name.to_string()) else { return news };
        match self.leader.replace(leader.clone()) {
            None => news.push(News::First(leader)),
            Some(from) if from != leader => news.push(News::Changed { from, to: leader }),
            Some(_) => {}
        }
        news
    }
}

impl LeaderLog {
    fn look_at_disk(&mut self, status: &Status) -> Option<News> {
        let waiting = status.disk_times.waiting.filter(|waiting| *waiting >= HANGS_AFTER);
        match (self.hangs_for, waiting) {
            (None, None) => None,
            (before, Some(waiting)) => {
                self.hangs_for = Some(waiting);
                before.is_none().then_some(News::DiskHangs(waiting))
            }
            (Some(longest), None) => {
                self.hangs_for = None;
                Some(News::DiskBack(longest))
            }
        }
    }
}

fn tell(news: &News, status: &Status) {
    let (term, voters) = (status.term, status.voters.len());
    match news {
        News::First(leader) => tracing::info!(leader, term, voters, "the cluster has a leader"),
        News::Changed { from, to } => tracing::warn!(from, to, term, "the leader changed"),
        News::QuorumLost => tracing::warn!(
            voters,
            "the quorum is lost: requests are served as before, and control writes fail"
        ),
        News::QuorumBack => tracing::info!(voters, "a majority of voters answers again"),
        News::DiskHangs(waiting) => tracing::warn!(
            ?waiting,
            "the disk of the data folder hangs: requests are served as before, and this node \
             confirms no control writes"
        ),
        News::DiskBack(waited) => {
            tracing::info!(?waited, "the disk of the data folder answers again");
        }
    }
}

#[cfg(test)]
mod tests {
    use spillway_raft::{DiskTimes, Member, NodeId};

    use super::*;

    fn status(leader: Option<u64>, age_ms: u64) -> Status {
        let member = |id: u64| {
            let name = format!("n{id}");
            (
                NodeId(id),
                Member {
                    name: name.as_str().into(),
                    region: "r".into(),
                    disk: (id as u128).into(),
                },
            )
        };
        Status {
            cluster: Some(1.into()),
            role: Role::Follower,
            leader: leader.map(NodeId),
            age: Some(Duration::from_millis(age_ms)),
            members: [member(1), member(2)].into(),
            ..Status::outside(1.into())
        }
    }

    #[test]
    fn a_change_of_the_leader_is_news_once() {
        let mut log = LeaderLog::default();
        assert_eq!(log.look(&status(Some(1), 10)), [News::First("n1".into())]);
        assert_eq!(log.look(&status(Some(1), 10)), []);
        assert_eq!(log.look(&status(None, 900)), [], "an election is under way");
        let changed = News::Changed { from: "n1".into(), to: "n2".into() };
        assert_eq!(log.look(&status(Some(2), 10)), [changed]);
    }

    #[test]
    fn a_lost_quorum_is_news_and_so_is_its_return() {
        let mut log = LeaderLog::default();
        log.look(&status(Some(1), 10));
        assert_eq!(log.look(&status(Some(1), 6_000)), [News::QuorumLost]);
        assert_eq!(log.look(&status(None, 7_000)), []);
        assert_eq!(log.look(&status(Some(1), 10)), [News::QuorumBack]);
        let isolated = Status { role: Role::IsolatedLeader, ..status(Some(1), 10) };
        assert_eq!(log.look(&isolated), [News::QuorumLost]);
    }

    #[test]
    fn a_disk_that_hangs_is_news_once_and_so_is_its_end() {
        let mut log = LeaderLog::default();
        let waiting = |seconds: u64| {
            let waiting = (seconds > 0).then(|| Duration::from_secs(seconds));
            Status { disk_times: DiskTimes { waiting, ..DiskTimes::default() }, ..status(None, 10) }
        };
        assert_eq!(log.look(&waiting(1)), []);
        assert_eq!(log.look(&waiting(2)), [News::DiskHangs(Duration::from_secs(2))]);
        assert_eq!(log.look(&waiting(9)), []);
        assert_eq!(log.look(&waiting(0)), [News::DiskBack(Duration::from_secs(9))]);
        assert_eq!(log.look(&waiting(0)), []);
    }

    #[test]
    fn a_node_in_no_cluster_yet_has_no_news() {
        let outside = Status { cluster: None, ..status(None, 60_000) };
        assert_eq!(LeaderLog::default().look(&outside), []);
    }
}
