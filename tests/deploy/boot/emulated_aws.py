"""moto's server with what it lacks: emulated_aws.py -H ADDRESS -p PORT."""

import sys

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult
from moto.server import main

update = FakeAutoScalingGroup.update
completed: set[str] = set()


def update_and_keep_the_policy(group: FakeAutoScalingGroup, **changes: object) -> None:
    """A change that names no instance types leaves them as they are, as at AWS."""
    policy = group.mixed_instances_policy
    update(group, **changes)
    names = ["launch_template", "launch_config_name", "mixed_instances_policy"]
    if not any(changes[name] for name in names):
        group.mixed_instances_policy = policy


def complete_lifecycle_action(self: AutoScalingResponse) -> ActionResult:
    """Says which instance is in service, once for each."""
    names = ["AutoScalingGroupName", "LifecycleHookName", "InstanceId", "LifecycleActionResult"]
    group, hook, instance, result = (self._get_param(name) for name in names)
    if instance in completed:
        raise ValidationError(f"No active Lifecycle Action found with instance ID {instance}")
    completed.add(instance)
    print("completed", group, hook, instance, result, flush=True)
    return EmptyResult()


FakeAutoScalingGroup.update = update_and_keep_the_policy
AutoScalingResponse.complete_lifecycle_action = complete_lifecycle_action

if __name__ == "__main__":
    main(sys.argv[1:])
