#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# What a guest with a whole distribution does: programs as the distribution ships them, many of
# them short-lived, and one whose call paths are known.
cd /tmp || exit
tar cf files.tar /usr/lib/python3*/[a-e]*.py 2>/dev/null
call_paths &

# Sample all that runs here by this distribution's own perf, and give what it says to the host.
look_from_inside()
{
	perf record -q -e cpu-clock -F 199 -g -a -o names.data -- sleep 20
	perf record -q -e cpu-clock -F 99 --call-graph dwarf -p "$(pidof call_paths)" \
		-o chains.data -- sleep 10
	for way in names chains; do
		# perf 6.1 has no field dsoff: it prints offsets in files in place of addresses.
		for fields in comm,ip,sym,dso,dsoff comm,ip,sym,dso; do
			perf script --no-inline --no-demangle -i $way.data -F $fields > $way.txt && break
		done
	done
	[ -s names.txt ] && [ -s chains.txt ] && tar cf /dev/vdb names.txt chains.txt
}

{
	sleep 20
	if look_from_inside > inside.log 2>&1; then
		echo "at work" > /dev/console
	else
		cat inside.log > /dev/console
	fi
} &
echo "begins" > /dev/console
while :; do
	python3 -c '
import hashlib, json, random, re
numbers = {str(i): [random.random() for _ in range(20)] for i in range(300)}
for _ in range(3):
    text = json.dumps(numbers)
    json.loads(text)
    re.findall(r"0\.[0-9]{3}", text)
    hashlib.sha256(text.encode()).hexdigest()
    sorted(map(str, numbers.values()))'
	gzip -c files.tar | gzip -dc > /dev/null
	perl -e 'my %h; $h{$_ % 977} .= "x$_" for 1..60000; join("", sort keys %h) =~ /99/;'
	openssl speed -seconds 1 -evp sha256 > /dev/null 2>&1
	tar tf files.tar > /dev/null
	for _ in 1 2 3 4; do
		# shellcheck disable=SC2010 # these are the programs that are to be sampled
		ls -l /usr/bin | grep x | sort | wc -l > /dev/null
	done
done
