#!/bin/sh
# Compiles a crate of the workspace with the coverage counters that libFuzzer reads. For cargo as
# RUSTC_WORKSPACE_WRAPPER: crates from elsewhere are compiled as always and shared with other builds.
case " $* " in
  # Build scripts run without libFuzzer, which has what counters call.
  *" --crate-name build_script_build "*) exec "$@" ;;
esac
exec "$@" --cfg fuzzing \
  -Cpasses=sancov-module \
  -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
  -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares
