#!/bin/sh
# Brings what pip cannot, for the tests that run RocketMQ itself: a JDK of Java 17 or later, and Maven.
# With apt and as root they are installed; elsewhere the command is said. Always succeeds: those tests
# themselves decide what a missing JDK means (a skip; under CI=true a failure).
set -eu

has_jdk() {
    major=$("${JAVA_HOME:+$JAVA_HOME/bin/}javac" -version 2>&1 | sed -n 's/^javac \([0-9][0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ]
}

has_maven() { command -v mvn >/dev/null; }

install() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    set --
    if ! has_jdk; then
        if apt-cache show openjdk-17-jdk-headless >/dev/null 2>&1; then
            set -- openjdk-17-jdk-headless
        else
            set -- default-jdk-headless
        fi
    fi
    has_maven || set -- "$@" maven
    echo "Installing $* with apt ..."
    apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$@"
}

if has_jdk && has_maven; then
    exit 0
fi
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    install </dev/null || true
fi
if has_jdk && has_maven; then
    exit 0
fi

cat >&2 <<'TEXT'
The tests that run RocketMQ itself need a JDK of Java 17 or later (javac, found through JAVA_HOME or PATH)
and Maven (mvn); the other tests run without. To install both:
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jdk-headless maven    (newer releases: default-jdk-headless)
  Fedora:          sudo dnf install java-21-openjdk-devel maven
  macOS:           brew install openjdk@17 maven
TEXT
