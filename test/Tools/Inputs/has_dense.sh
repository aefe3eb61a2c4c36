#!/bin/sh
# Interesting (status 1) as long as the file has the operation.
! grep -q attn.dense "$1"
