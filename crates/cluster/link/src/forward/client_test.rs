use super::*;

#[test]
fn only_a_peer_that_was_heard_before_is_silent() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut silence = Silence::default();
    assert_eq!(silence.look(false, at(0)), Duration::ZERO);
    assert_eq!(silence.look(false, at(5_000)), Duration::ZERO, "it was never heard");
    assert_eq!(silence.look(true, at(6_000)), Duration::ZERO);
    assert_eq!(silence.look(false, at(7_000)), Duration::ZERO);
    assert_eq!(silence.look(false, at(8_500)), Duration::from_millis(1_500));
    assert_eq!(silence.look(true, at(9_000)), Duration::ZERO, "it is back");
    assert_eq!(silence.look(false, at(10_000)), Duration::ZERO);
}
