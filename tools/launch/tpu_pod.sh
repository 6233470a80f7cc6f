#!/usr/bin/env bash
# Trains on every host of a Cloud TPU slice: the same command by ssh on all workers at once.
#
#   tools/launch/tpu_pod.sh --tpu=pod1 --zone=us-west4-a -- \
#       --config=configs/longclip_l.py:docci --workdir=/mnt/runs/first
#
# What stands behind -- goes to `hnclip train`. See docs/pods.md.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tpu_pod.sh --tpu=NAME --zone=ZONE [options] -- FLAGS OF hnclip train
  --project=NAME   Google Cloud project; without it, gcloud's default
  --dir=PATH       folder on the hosts to start in (default: hnclip_jax, in the home folder)
  --hnclip=PATH    the program on the hosts (default: .venv/bin/hnclip, seen from --dir)
  --log=PATH       goes on when this shell ends; each host writes what it says to that file
  --dry-run        prints the command and runs nothing
TEXT
}

fail() {
  printf 'tpu_pod.sh: %s\n' "$1" >&2
  exit 2
}

tpu='' zone='' project='' dir=hnclip_jax hnclip=.venv/bin/hnclip log='' dry_run=''
while (($#)); do
  case "$1" in
    --tpu=*) tpu=${1#*=} ;;
    --zone=*) zone=${1#*=} ;;
    --project=*) project=${1#*=} ;;
    --dir=*) dir=${1#*=} ;;
    --hnclip=*) hnclip=${1#*=} ;;
    --log=*) log=${1#*=} ;;
    --dry-run) dry_run=yes ;;
    -h | --help)
      usage
      exit 0
      ;;
    --)
      shift
      break
      ;;
    *) fail "unknown option $1; flags of hnclip train stand behind --" ;;
  esac
  shift
done
[[ -n $tpu && -n $zone ]] || fail 'needs --tpu=NAME and --zone=ZONE'
(($#)) || fail 'needs the flags of hnclip train behind --'

# Quoted once more, because a shell on the host reads it.
remote=$(printf '%q ' cd "$dir")
train=$(printf '%q ' "$hnclip" train --config.parallel.coordinator=auto \
  --config.parallel.platform=tpu "$@")
if [[ -n $log ]]; then
  remote+="&& { nohup $train> $(printf '%q' "$log") 2>&1 < /dev/null & }"
else
  remote+="&& exec ${train% }"
fi

command=(gcloud compute tpus tpu-vm ssh "$tpu" "--zone=$zone" --worker=all)
[[ -z $project ]] || command+=("--project=$project")
command+=("--command=$remote")
if [[ -n $dry_run ]]; then
  printf '%q ' "${command[@]}"
  printf '\n'
  exit 0
fi
exec "${command[@]}"
