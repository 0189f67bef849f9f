# Replaces the module of this name in memcached's source, so that its test files test a proxy in front of a memcached.
# MEMCACHED and WAYSTAGE are the commands that start the two, one word a line. `mem_stats` reads the counters of the memcached.
package MemcachedTest;

use strict;
use warnings;
use Exporter 'import';
use IO::Socket::INET;
use POSIX 'WNOHANG';
use Test::More ();

our @EXPORT = qw(new_memcached sleep free_port mem_stats mem_move_time mem_get_is mem_gets mem_gets_is
    supports_sasl supports_extstore supports_tls supports_proxy supports_drop_priv supports_unix_socket
    enabled_tls_testing);

use constant MAX_READ_WRITE_SIZE => 16384;

# The port of the memcached behind each proxy, by the proxy's port.
my %behind;

# Takes fractions of a second.
sub sleep {
    my ($seconds) = @_;
    return select undef, undef, undef, $seconds;
}

# Only a debug build of memcached can move its clock, which ticks once a second: one more tick must have passed for sure.
sub mem_move_time {
    my ($sock, $seconds) = @_;
    return MemcachedTest::sleep($seconds + 1);
}

sub supports_sasl        { return 0 }
sub supports_extstore    { return 0 }
sub supports_tls         { return 0 }
sub supports_proxy       { return 0 }
sub supports_drop_priv   { return 0 }
sub supports_unix_socket { return 0 }
sub enabled_tls_testing  { return 0 }

# A port that is free at this moment.
sub free_port {
    return IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1)->sockport;
}

# A server that starts with these arguments, and a proxy in front of it.
sub new_memcached {
    my ($arguments) = @_;
    my $port = free_port();
    my $self = bless { processes => [] }, 'Memcached::Handle';
    my $memcached = start($self, undef, split(/\n/, $ENV{MEMCACHED}), $port, split(' ', $arguments // ''));
    until (connected($port)) {
        die "Failed to start memcached\n" if waitpid($memcached, WNOHANG) != 0;
        MemcachedTest::sleep(0.01);
    }
    pipe $self->{output}, my $written or die "Failed to open a pipe: $!";
    start($self, $written, split(/\n/, $ENV{WAYSTAGE}), "127.0.0.1:$port");
    close $written;
    my $line = readline($self->{output}) // '';
    ($self->{port}) = $line =~ /ready on 127\.0\.0\.1:(\d+)/ or die "Failed to start the proxy\n";
    $behind{ $self->{port} } = $port;
    return $self;
}

# Runs a command with this standard output until the server stops, and returns its process number.
sub start {
    my ($self, $output, @command) = @_;
    my $pid = fork() // die "Failed to fork: $!";
    if ($pid == 0) {
        open STDOUT, '>&', $output if $output;
        exec @command or die "$command[0]: $!";
    }
    push @{ $self->{processes} }, $pid;
    return $pid;
}

sub connected {
    return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $_[0]);
}

sub options {
    my ($first) = @_;
    return ref $first eq 'HASH' ? ($first->{sock}, $first->{flags} || 0) : ($first, 0);
}

# The counters of the server behind the proxy to which this socket is connected.
sub mem_stats {
    my ($sock, $kind) = @_;
    my $direct = connected($behind{ $sock->peerport });
    print $direct $kind ? "stats $kind\r\n" : "stats\r\n";
    my %stats;
    while (my $line = <$direct>) {
        last if $line =~ /^END/;
        $stats{$1} = $2 if $line =~ /^\S+ (\S+)\s+([^\r\n]+)/;
    }
    return \%stats;
}

# The whole reply to a retrieval of one value without line ends, and what is expected.
sub expect_value {
    my ($sock, $command, $expected, $name) = @_;
    print $sock "$command\r\n";
    my $reply = <$sock> // '';
    $reply .= <$sock> . <$sock> if $reply =~ /^VALUE/;
    return Test::More::is($reply, $expected, $name);
}

sub mem_get_is {
    my ($first, $key, $value, $name) = @_;
    my ($sock, $flags) = options($first);
    my $found = defined $value ? "VALUE $key $flags " . length($value) . "\r\n$value\r\n" : '';
    return expect_value($sock, "get $key", "${found}END\r\n", $name // "value of $key");
}

sub mem_gets_is {
    my ($first, $token, $key, $value, $name) = @_;
    my ($sock, $flags) = options($first);
    my $found = defined $value ? "VALUE $key $flags " . length($value) . " $token\r\n$value\r\n" : '';
    return expect_value($sock, "gets $key", "${found}END\r\n", $name // "value of $key");
}

# The cas token and the value of a key.
sub mem_gets {
    my ($first, $key) = @_;
    my ($sock) = options($first);
    print $sock "gets $key\r\n";
    my $line = <$sock>;
    return 'NOT_FOUND' if $line =~ /^END/;
    my ($length, $token) = $line =~ /^VALUE \S+ \d+ (\d+) (\d+)/;
    read $sock, my ($value), $length;
    <$sock> for 1 .. 2;
    return ($token, $value);
}

package Memcached::Handle;

sub host { return '127.0.0.1' }
sub port { return $_[0]{port} }

sub sock {
    my ($self) = @_;
    $self->{sock} = $self->new_sock unless $self->{sock} && getpeername $self->{sock};
    return $self->{sock};
}

sub new_sock { return MemcachedTest::connected($_[0]{port}) }

sub stop {
    my ($self) = @_;
    local $?;
    for my $process (splice @{ $self->{processes} }) {
        kill 'KILL', $process;
        waitpid $process, 0;
    }
    return;
}

sub DESTROY { return $_[0]->stop }

1;
