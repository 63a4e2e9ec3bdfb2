#!/bin/sh
# Sends a beat to campus for an event of the agent's host. It always succeeds, and prints nothing, so that no host reads a decision from
# it. The exception: when another agent has taken over this session's work, it prints the decision that stops this one.
#   beat.sh event   posts what the host writes to its standard input
#   beat.sh tool    is for events that come with every tool call: posts whose call it was, and how often it was the same one in a row
# What a tool is given and answers stays here. Whether a call repeats the last one is told by a digest, made with a secret of this machine.
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
body=$(head -c 1000000)   # campus reads no more than 1 MiB
session=${body#*\"session_id\"}
stamp=$folder/$(printf %s "$url${session%%,*}" | cksum | cut -d' ' -f1)
if [ "$1" = tool ]; then
    head=${body%%\"tool_input\"*}   # hosts write these members before what the tool is given, and no text contains a bare quote
    call=${head##*\"tool_name\"}${body#"$head"}
    call=${call%\"tool_response\"*}
    call=${call%\"tool_use_id\"*}
    umask 077
    mkdir -p "$folder"
    [ -s "$folder/secret" ] || head -c 32 /dev/urandom | od -An -tx1 > "$folder/secret"
    case $head in *\"agent_id\"*) stamp=$stamp.agent ;; esac
    counted= changed=1 repeats=1 times=0 last=
    case $head in
        *\"PreToolUse\"*) ;;
        *)
            digest=$( { cat "$folder/secret"; printf %s "$call"; } | { sha256sum || shasum -a 256; } | cut -c1-64)
            read -r times last < "$stamp.call"
            if [ -n "$digest" ] && [ "$digest" = "$last" ]; then repeats=$((times + 1)); else changed=$times; fi
            echo "$repeats $digest" > "$stamp.call"
            counted=", \"tool_digest\": \"$digest\", \"tool_repeats\": $repeats" ;;
    esac
    case ${head%,*} in
        *\"Agent\" | *\"Task\" | *\"wait_agent\")   # the main loop waits for a subagent, unless that runs in the background
            case $call in *\"run_in_background\":true* | *\"run_in_background\":\ true*) head=${head%\"tool_name\"*} ;; esac ;;
        *)  # once a minute, while a call repeats itself, and once when it does not any more
            [ "$repeats" -gt 1 ] || [ "$changed" -gt 1 ] || [ -z "$(find "$stamp" -mmin -1)" ] || finish ;;
    esac
    : > "$stamp"
    body="${head%,*}$counted}"
fi

# the address holds a secret: it goes in by a descriptor, because every user of the machine sees a command's arguments
answer=$(printf %s "$body" | curl -q --silent --connect-timeout 2 --max-time 4 --proto =http,https --output /dev/null --dump-header - \
    --header 'Content-Type: application/json' --data-binary @- --config /dev/fd/3 3<<EOF
url = "$url"
EOF
)
case $1$body in tool* | *\"agent_id\"*) ;; *) rm -f "$stamp" "$stamp.call" ;; esac   # the agent may have been idle: its next tool call says at once that it works
case $answer in
    *[Xx]-[Bb]eat:\ taken_over*)
        rm -f "$stamp"
        printf '%s\n' '{"continue": false, "stopReason": "Another agent has taken over the work of this session. To use this session for other work, set CAMPUS_HOOK_URL to the hook_url of another monitor, or to nothing."}' >&4 ;;
esac
finish
