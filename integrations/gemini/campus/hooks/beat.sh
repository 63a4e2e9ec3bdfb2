#!/bin/sh
# Sends a beat to campus for an event of the agent's host. It always succeeds, and prints nothing, so that no host reads a decision from
# it. The exception: when another agent has taken over this session's work, it prints the decision that stops this one.
#   beat.sh event   posts what the host writes to its standard input
#   beat.sh alive   posts nothing but the beat, at most once a minute: for events that come with every tool call
# The address is hook_url of register_monitor, in CAMPUS_HOOK_URL or in the plugin's option of that name.

exec 4>&1 2>/dev/null >/dev/null

finish() {
    cat   # a host that cannot write all of its message may take that for a failure
    exit 0
}

url=${CAMPUS_HOOK_URL:-${CLAUDE_PLUGIN_OPTION_HOOK_URL:-}}
case $url in
    '' | *[!][0-9A-Za-z:/._~?=%-]*) finish ;;   # none, or text that curl would read as more than an address
    http://* | https://*) ;;
    *) finish ;;
esac

folder=${CLAUDE_PLUGIN_DATA:-${XDG_CACHE_HOME:-$HOME/.cache}}/campus-beat
stamp=$folder/$(printf %s "$url" | cksum | cut -d' ' -f1)
if [ "$1" = alive ]; then
    mkdir -p "$folder"
    [ -z "$(find "$stamp" -mmin -1)" ] || finish
    : > "$stamp"
    body=
else
    body=$(head -c 1000000)   # campus reads no more than 1 MiB
fi

# the address holds a secret: it goes in by a descriptor, because every user of the machine sees a command's arguments
answer=$(printf %s "$body" | curl -q --silent --connect-timeout 2 --max-time 4 --proto =http,https --output /dev/null --dump-header - \
    --header 'Content-Type: application/json' --data-binary @- --config /dev/fd/3 3<<EOF
url = "$url"
EOF
)
[ "$1" = alive ] || rm -f "$stamp"   # the agent may have been idle: its next tool call says at once that it works
case $answer in
    *[Xx]-[Bb]eat:\ taken_over*)
        rm -f "$stamp"
        printf '%s\n' '{"continue": false, "stopReason": "Another agent has taken over the work of this session. To use this session for other work, set CAMPUS_HOOK_URL to the hook_url of another monitor, or to nothing."}' >&4 ;;
esac
finish
