#!/bin/sh
# Sends a beat to campus for an event of the agent's host. It prints nothing and always succeeds, so that no host reads a decision from it.
#   beat.sh event   posts what the host writes to its standard input
#   beat.sh alive   posts nothing but the beat, at most once a minute: for events that come with every tool call
# The address is hook_url of register_monitor, in CAMPUS_HOOK_URL or in the plugin's option of that name.

exec 2>/dev/null >/dev/null

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

if [ "$1" = alive ]; then
    folder=${CLAUDE_PLUGIN_DATA:-${XDG_CACHE_HOME:-$HOME/.cache}}/campus-beat
    mkdir -p "$folder"
    stamp=$folder/$(printf %s "$url" | cksum | cut -d' ' -f1)
    [ -z "$(find "$stamp" -mmin -1)" ] || finish
    : > "$stamp"
    body=
else
    body=$(head -c 1000000)   # campus reads no more than 1 MiB
fi

# the address holds a secret: it goes in by a descriptor, because every user of the machine sees a command's arguments
printf %s "$body" | curl -q --silent --connect-timeout 2 --max-time 4 --proto =http,https \
    --header 'Content-Type: application/json' --data-binary @- --config /dev/fd/3 3<<EOF
url = "$url"
EOF
finish
