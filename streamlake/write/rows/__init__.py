"""Prepares rows for files: conversion, checks, sorting, partitioning."""
