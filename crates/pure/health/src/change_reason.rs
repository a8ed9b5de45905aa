//! Reason of a change of a replica's state.

use serde::Serialize;
use spillway_types::reasons;

reasons! {
    /// Reason of a change of a replica's state, for logs, metrics and reports.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ChangeReason {
        /// The replica is new and has not answered yet.
        Joined = "joined";
        /// The replica was there when the node started, and serves until a signal says otherwise.
        PresumedReady = "presumed_ready";
        /// The replica's checks have passed.
        Ready = "ready";
        /// The replica loads its model.
        Loading = "loading";
        /// The replica has answered its warm-up prompts.
        WarmedUp = "warmed_up";
        /// The replica failed at its warm-up prompts.
        WarmUpFailed = "warm_up_failed";
        /// The slow start is over.
        RampEnded = "ramp_ended";
        /// The replica is overloaded and asked for a pause.
        AskedToWait = "asked_to_wait";
        /// The pause that the replica asked for is over.
        WaitOver = "wait_over";
        /// The signals of this node agree that the replica is down.
        SignalsAgree = "signals_agree";
        /// The signals of the region's nodes agree that the replica is down.
        RegionAgrees = "region_agrees";
        /// The deep check of the replica failed.
        DeepCheckFailed = "deep_check_failed";
        /// Connections to the replica failed.
        ConnectFaults = "connect_faults";
        /// The replica reported that its engine ends.
        EngineGone = "engine_gone";
        /// The replica generates no token while its queue grows.
        Wedged = "wedged";
        /// The replica sends no byte to any request.
        SilentStall = "silent_stall";
        /// Too many requests in a row failed at the replica.
        FaultsInARow = "faults_in_a_row";
        /// The replica is several times slower than its peers.
        SlowOutlier = "slow_outlier";
        /// The ejection is over, and the replica gets a few requests.
        EjectionOver = "ejection_over";
        /// The back-off is over, and no active check decides about the replica.
        BackOffOver = "back_off_over";
        /// Enough requests of the trial went well.
        TrialPassed = "trial_passed";
        /// A request of the trial failed, or was far slower than at other replicas.
        TrialFailed = "trial_failed";
        /// The replica was silent and answers again.
        AnswersAgain = "answers_again";
        /// The replica was down, and its active checks pass again.
        ActiveChecksRose = "active_checks_rose";
        /// An operator drains the replica.
        DrainOrdered = "drain_ordered";
        /// The platform is about to take the replica's machine away.
        PreemptionNotice = "preemption_notice";
        /// The replica has finished its requests, or the time for that is over.
        Drained = "drained";
        /// An operator ended the drain.
        Resumed = "resumed";
        /// The replica left the reserve, since others are missing or busy.
        Promoted = "promoted";
        /// The replica went back into the reserve.
        Demoted = "demoted";
        /// A model's circuit breaker at the replica changed.
        Breaker = "breaker";
    }
}
