#!/bin/sh
# Starts the runner as an engine's host would.  It sets no switch: DSPARK_SAMPLED_TOP32 is the
# worker's and VLLM_DSPARK_SAMPLED_TOP32 the engine's, and both are for a person to set.
set -eu
cd "$(dirname "$0")"
exec "${PYTHON:-python3}" -m dspark_runner "$@"
